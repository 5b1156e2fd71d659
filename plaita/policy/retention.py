"""How long what is over is remembered: finished rows, and tombstones of deleted executions (ledger D2, D7). Pure."""

from __future__ import annotations

DAY_MS = 86_400_000


def retention_ms(execution_state_ttl_days: float, task_max_age_seconds: int) -> int:
    """How long a finished row is kept; 0 is for ever. Never below the age limit: else a carrier could come for an
    execution nobody knows any more (DECISIONS 17)."""
    if execution_state_ttl_days <= 0:
        return 0
    return max(int(execution_state_ttl_days * DAY_MS), task_max_age_seconds * 1000)


def tombstone_ttl_ms(
    execution_tombstone_ttl_seconds: int, execution_state_ttl_days: float, task_max_age_seconds: int
) -> int:
    """How long a deleted execution stays deleted: as said, but not shorter than rows live or carriers may be old. A
    state TTL of 0 (rows kept for ever) and an age limit of 0 (off) add nothing: no tombstone is for ever (D2)."""
    return max(
        execution_tombstone_ttl_seconds * 1000, int(execution_state_ttl_days * DAY_MS), task_max_age_seconds * 1000
    )

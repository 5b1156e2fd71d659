"""Counters under the names of the ledger and REFERENCE 8.1, in memory; ``status`` and the metrics port read them."""

from __future__ import annotations

COUNTERS = (
    "acked",
    "reclaimed",
    "dead_lettered",
    "lease_conflicts",
    "poison_acked",
    "failed",
    "schema_rejected",
    "dlq_guard_skipped",
    "claim_guard_skipped",
    "dlq_trimmed",
    "dlq_trim_failures",
    "carriers_too_old",
    "carrier_age_unknown_total",
    "residue_swept",
    "ghosts_acked",
    "handed_on",
    "handed_over",
    "broadcast",
    "handover_exhausted",
    "repo_denied",
    "killed",
    "finished",
    "steps",
    "step_failures",
    "step_timeouts",
    "node_retries",
    "suspended",
    "resumes_normalised",
    "executor_deaths",
    "executor_spawns",
    "spawn_failures",
    "template_restarts",
    "breaker_opened",
    "breaker_closed",
    "breaker_delayed",
    "leases_lost",
    "refused_writes",
    "answers_resent",
    "answers_dropped",
    "failovers",
    "failover_dropped",
    "tenant_disabled_dropped",
    "tenant_epoch_refused",
    "parked",
    "parked_released",
    "delayed_promoted",
    "delayed_bad",
    "events_read",
    "events_bad",
    "events_failed",
    "events_put_off",
    "waits_woken",
    "subscriptions_residual",
    "schedules_fired",
    "schedules_skipped",
    "schedules_failed",
    "schedules_bad",
    "schedules_put_back",
    "service_failures",
    "callbacks_kept_used",
    "callbacks_kept_refused",
    "queue_messages",
    "queue_messages_bad",
    "queue_target_failures",
    "queue_leftovers_given_up",
    "strays_killed",
    "output_bytes_dropped",
    "log_lines_dropped",
    "registry_status_flush_failed_total",
)


TIMINGS = ("pipe_us", "commit_us")


class Stats:
    """A fixed set of counters: a name that is not known is a bug and raises KeyError.

    ``timings`` are sums of microseconds over all steps: from sending a step to its answer, from sending its commit to
    Redis's answer.
    """

    def __init__(self) -> None:
        self._counts = dict.fromkeys(COUNTERS, 0)
        self.timings = dict.fromkeys(TIMINGS, 0)

    def add(self, name: str, amount: int = 1) -> None:
        self._counts[name] += amount

    def get(self, name: str) -> int:
        return self._counts[name]

    def snapshot(self) -> dict[str, int]:
        """A copy, for ``status``."""
        return dict(self._counts)

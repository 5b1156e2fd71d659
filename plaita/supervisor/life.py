"""What the supervisor is at this moment, for all who show it or depend on it. Changed by ``supervisor`` alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from plaita.clock import boot_ms
from plaita.policy.lifecycle import State, Wish

EXIT_CLEAN = 0
EXIT_BUG = 70
EXIT_KILLED_WORK = 75
EXIT_CONFIGURATION = 78


@dataclass(slots=True)
class Drain:
    """``since`` is epoch ms; the counts are those of the counters when it began."""

    since: int | None = None
    timeout_s: float = 0.0
    before: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Life:
    """``started`` is boot ms; ``carriers`` is how many are in hand; ``server`` names the Redis server once it answered;
    ``exit_code`` is what the process would end with (DECISIONS 31)."""

    drain: Drain
    state: State = State.STARTING
    wish: Wish = Wish.NONE
    exit_code: int = EXIT_CLEAN
    started: int = field(default_factory=boot_ms)
    carriers: int = 0
    server: str = ""

    @property
    def leaving(self) -> bool:
        """No further step may start here."""
        return self.state is not State.RUNNING

    @property
    def status_hint(self) -> str:
        """What to do about a status that takes no work."""
        if self.state is State.DRAINING and self.wish is Wish.DRAIN:
            return "plaita-supervisor undrain"
        return "start it again" if self.state in (State.DRAINING, State.STOPPING, State.STOPPED) else "wait"

"""What the supervisor is at this moment, for all who show it or depend on it. Changed by ``supervisor`` and its
``drain`` alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plaita.clock import boot_ms
from plaita.policy.lifecycle import State, Wish

EXIT_CLEAN = 0
EXIT_BUG = 70
EXIT_KILLED_WORK = 75
EXIT_CONFIGURATION = 78
_WORST_LAST = (EXIT_CLEAN, EXIT_KILLED_WORK, EXIT_CONFIGURATION, EXIT_BUG)

RECEIPT = ("finished", "handed_on", "killed")


@dataclass(slots=True)
class Drain:
    """``since`` is epoch ms, ``began`` and ``deadline`` boot ms (None: there is no such time yet); ``before`` are the
    counters when it began; ``killing``: its time is over; ``left``: executions that it gave up, since Redis did not
    take what was to be written."""

    since: int | None = None
    began: int | None = None
    deadline: int | None = None
    timeout_s: float = 0.0
    killing: bool = False
    left: int = 0
    before: dict[str, int] = field(default_factory=dict)

    def receipt(self, counters: Mapping[str, int]) -> dict[str, int]:
        """What became of the work that it found."""
        return {**{name: counters[name] - self.before.get(name, 0) for name in RECEIPT}, "left": self.left}


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
        """No further step may start here. What starts and is not registered yet may work (ledger G3)."""
        return self.state is not State.RUNNING and not (self.state is State.STARTING and self.wish is Wish.NONE)

    @property
    def undoable(self) -> bool:
        """It runs, or could again without a restart."""
        return self.state is State.RUNNING or (self.state is State.DRAINING and self.wish is Wish.DRAIN)

    @property
    def status_hint(self) -> str:
        """What to do about a status that takes no work."""
        if self.wish is Wish.DRAIN and self.state in (State.STARTING, State.DRAINING):
            return "`plaita-supervisor undrain` takes it back"
        leaving = self.state in (State.DRAINING, State.STOPPING, State.STOPPED)
        return "it was told to stop and ends by itself; start it again" if leaving else "it goes on by itself"

    def ends_with(self, code: int) -> None:
        """One more reason for an exit code: the worst is told, and the kills that a bug led to do not hide it."""
        self.exit_code = max(self.exit_code, code, key=_WORST_LAST.index)

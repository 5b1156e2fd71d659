"""Which executors are of before the last reload, and whose turn it is to leave: one at a time, so that a reload never
takes more than one place of a host's capacity, and none beyond that where the new ones do not come to stand."""

from __future__ import annotations

from plaita.policy.slot import Slot
from plaita.supervisor.executor import Executor


class Renewal:
    """``pool`` asks before it offers, and after each step."""

    def __init__(self) -> None:
        self._new_from = 0
        self._slot: int | None = None  # where one has left and none of after has come to stand

    def begin(self, first_seq: int) -> None:
        """Executors from this one on are new."""
        self._new_from = first_seq

    def is_old(self, executor: Executor) -> bool:
        """Forked before."""
        return executor.seq < self._new_from

    def leaves(self, executor: Executor) -> bool:
        """Whether this idle one is to leave now; noted, so a yes must be obeyed."""
        if not self.is_old(executor) or executor.state is not Slot.IDLE or self._slot not in (None, executor.slot):
            return False
        self._slot = executor.slot
        return True

    def stands(self, executor: Executor) -> None:
        """It has said hello."""
        if executor.slot == self._slot and not self.is_old(executor):
            self._slot = None

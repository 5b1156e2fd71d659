"""When a node of a flow's version that keeps killing executors is not run here for a while (DECISIONS 38).

Each death costs a step and a process; a node that kills under one execution after another would keep a host busy with
dying, for the flows beside it too. So it is shut out for a minute, and then one execution may try. Pure functions over
one node's ``Circuit``; times are boot-clock ms; a carrier is named by its execution, whose copies are the same.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

DEATHS = 5
CARRIERS = 3  # fewer are a matter of what those executions were given: the budget of lost steps sees to them
WINDOW_MS = 600_000
SHUT_MS = 60_000
REMEMBERED = 32  # deaths a node


@dataclass(frozen=True, slots=True)
class Circuit:
    """``deaths``: (when, carrier) of the window, oldest first. ``until``: shut, until one may try; None while all may.
    ``probe``: the carrier that tries."""

    deaths: tuple[tuple[int, str], ...] = ()
    until: int | None = None
    probe: str | None = None

    @property
    def shut(self) -> bool:
        """Its carriers are delayed, but for one that tries."""
        return self.until is not None

    @property
    def carriers(self) -> int:
        """Under how many carriers it has killed."""
        return len({carrier for _, carrier in self.deaths})

    def idle(self, now: int) -> bool:
        """Nothing needs to be remembered of it."""
        return not self.shut and not _recent(self.deaths, now)


def _recent(deaths: tuple[tuple[int, str], ...], now: int) -> tuple[tuple[int, str], ...]:
    return tuple(death for death in deaths if now - death[0] < WINDOW_MS)


def after_death(circuit: Circuit, carrier: str, now: int) -> Circuit:
    """An executor died under this carrier's step. A death of a step that had begun before it was shut changes nothing
    about until when."""
    deaths = (*_recent(circuit.deaths, now), (now, carrier))[-REMEMBERED:]
    after = replace(circuit, deaths=deaths)
    if circuit.shut and carrier != circuit.probe:
        return after
    if circuit.shut or (len(deaths) >= DEATHS and after.carriers >= CARRIERS):
        return replace(after, until=now + SHUT_MS, probe=None)
    return after


def after_answer(circuit: Circuit, carrier: str) -> Circuit:
    """The executor lived through this carrier's step, whatever it answered: of a probe, that opens it to all."""
    return Circuit() if circuit.shut and carrier == circuit.probe else circuit


def after_nothing(circuit: Circuit, carrier: str, now: int) -> Circuit:
    """The step came to no end that says anything (a drain, a lost lease): another may try at once."""
    return replace(circuit, until=now, probe=None) if circuit.shut and carrier == circuit.probe else circuit


def ask(circuit: Circuit, carrier: str, now: int) -> tuple[Circuit, int | None]:
    """May this carrier's step begin? The circuit after that, and None, or for how many ms to delay the carrier.

    A probe that takes long does not keep all others out for ever: after as long as it would be shut, the next may try.
    """
    if circuit.until is None or carrier == circuit.probe:
        return circuit, None
    left = circuit.until - now
    if left <= 0:
        return replace(circuit, until=now + SHUT_MS, probe=carrier), None
    soon = SHUT_MS // 10
    spread = zlib.crc32(carrier.encode()) % max(1, soon)  # or a thousand would come back in the same instant
    return circuit, (left if circuit.probe is None else min(left, soon)) + spread

"""Schedules: does somebody fire them, and does each have a due time (ledger E1, E5)?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from plaita.policy.doctor.finding import Finding, error, fine, note, plural, sample, span, warning
from plaita.policy.doctor.registry import RegistryFacts

OVERDUE_S = 30.0  # a host that runs services looks each second


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """``readable`` False: this user may not look. Of all tenants: ``due`` schedules have a due time, of ``overdue`` it
    passed more than OVERDUE_S ago, of the oldest by ``overdue_s``. Of ``tenant``: ``lost`` should have a due time and
    have none, ``aside`` cannot be fired, ``elsewhere`` are of other queues. ``complete`` False: there are
    more than were looked at."""

    registry: RegistryFacts
    readable: bool = True
    due: int = 0
    overdue: int = 0
    overdue_s: float = 0.0
    tenant: str = "default"
    lost: Sequence[str] = ()
    aside: Sequence[str] = ()
    elsewhere: Sequence[str] = ()
    complete: bool = True

    @property
    def of_tenant(self) -> str:
        return "" if self.tenant == "default" else f" --tenant {self.tenant}"


def overdue(facts: ScheduleFacts) -> Iterable[Finding]:
    if not facts.overdue:
        yield fine("schedules.due", f"{facts.due}, none overdue", "none overdue")
        return
    here = [one for one in facts.registry.running if not one.queue or one.queue == facts.registry.queue]
    serving = [one.instance_id for one in here if one.services]
    if not facts.registry.readable or serving:
        why = "hosts with services look each second; these take longer than that, or Redis refuses what they write"
        who = sample(serving) if serving else "each host"
        action = f"the log of {who}: schedule.left says what keeps it from firing; plaita-supervisor explain"
    elif here:
        why = f"all that run ({sample([one.instance_id for one in here])}) have --no-services: nobody fires schedules"
        action = "start a supervisor without --no-services on this queue"
    else:
        why = "no supervisor runs: nobody fires schedules"
        action = "systemctl start plaita-supervisor on a host"
    yield error(
        "schedules.due",
        f"{facts.overdue} of {facts.due} overdue, the oldest by {span(facts.overdue_s)}",
        f"none overdue by more than {OVERDUE_S:g} s",
        f"{why}; what was missed is seen to then, as its --misfire says",
        action,
    )


def lost(facts: ScheduleFacts) -> Iterable[Finding]:
    if facts.lost:
        yield error(
            "schedules.lost",
            f"{plural(len(facts.lost), 'schedule')} without a due time: {sample(facts.lost)}",
            "a due time for each that is not paused",
            "nothing fires these: the set of due times was lost, or a part of it; a host with services puts them back "
            "within some minutes, where it knows of the tenant",
            f"plaita reindex{facts.of_tenant} puts them back; what passed meanwhile is seen to as its --misfire says",
        )


def aside(facts: ScheduleFacts) -> Iterable[Finding]:
    if facts.aside:
        yield warning(
            "schedules.aside",
            f"{plural(len(facts.aside), 'schedule')} put aside: {sample(facts.aside)}",
            "0",
            "a host could not read these, or does not know their zone: they do not fire any more",
            f"plaita schedule show {facts.aside[0]}{facts.of_tenant} says why; then plaita schedule put",
        )


def elsewhere(facts: ScheduleFacts) -> Iterable[Finding]:
    if facts.elsewhere:
        yield note(
            "schedules.elsewhere",
            f"{plural(len(facts.elsewhere), 'schedule')} of other queues: {sample(facts.elsewhere)}",
            "",
            "supervisors of those queues fire them; where the queue has got another name, nobody does",
            f"plaita schedule show {facts.elsewhere[0]}{facts.of_tenant} says which; plaita schedule put brings it "
            "to this one",
        )


def looked_at(facts: ScheduleFacts) -> Iterable[Finding]:
    if not facts.complete:
        yield note(
            "schedules.looked_at",
            "not all of them",
            "",
            "looking is bounded, so the rest was not judged",
            f"plaita schedule list{facts.of_tenant} goes through all of them",
        )


Check = Callable[[ScheduleFacts], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (overdue, lost, aside, elsewhere, looked_at)


def judge(facts: ScheduleFacts) -> list[Finding]:
    """All of the table, in its order; one note where this user may not look."""
    if not facts.readable:
        return [note("schedules.due", "not allowed to look", "", "this Redis user may not read the schedules")]
    return [finding for check in CHECKS for finding in check(facts)]

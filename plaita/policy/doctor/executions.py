"""Executions that stand still: no carrier, no holder, a timer that is gone, a step without an end (D4, D6, L4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from plaita.policy.doctor.finding import Finding, error, fine, note, plural, sample, span, warning
from plaita.policy.doctor.registry import RegistryFacts

LOST_S = 60.0  # younger ones may be between two places
OVERDUE_S = 30.0
LONG_STEP_S = 3600.0
VERY_LONG_STEP_S = 86_400.0
HEARTBEATS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One that is ``pending``, ``running`` or ``suspended``. Seconds are of now, by the server's clock: ``quiet_s``
    since it was written, ``open_s`` since its open node began (None: none is open), ``due_s`` until the deadline of its
    wait (None without one). ``holder``: ``<instance>/<incarnation>``, '' without a lease. ``woken``: its wait is over,
    or a cancel is asked for. ``timer``: the delayed delivery of its deadline is there."""

    execution_id: str
    status: str
    quiet_s: float
    node: str = ""
    open_s: float | None = None
    holder: str = ""
    woken: bool = False
    due_s: float | None = None
    timer: bool = True


@dataclass(frozen=True, slots=True)
class ExecutionFacts:
    """``rows`` None: this user may not look. ``looked``: of ``there`` executions that have not ended, by the indexes.
    ``carried``: those that a carrier is for, None where the streams were too long to tell. ``disabled``: the tenant
    is, so that its carriers are dropped."""

    rows: Sequence[Row] | None
    registry: RegistryFacts
    tenant: str = "default"
    looked: int = 0
    there: int = 0
    carried: Collection[str] | None = frozenset()
    carriers_looked: int = 0
    heartbeat_s: float = 40.0
    lease_ttl_s: float = 120.0
    disabled: bool = False

    @property
    def of_tenant(self) -> str:
        return "" if self.tenant == "default" else f" --tenant {self.tenant}"


def without_holder(facts: ExecutionFacts) -> list[Row]:
    """Those that should move, are held by nobody, and have been so for a while: each needs a carrier."""
    return [row for row in facts.rows or () if _should_move(row) and not row.holder and row.quiet_s > LOST_S]


def with_carriers(facts: ExecutionFacts, rows: Sequence[Row], carried: Collection[str] | None) -> ExecutionFacts:
    """The same, once the carriers have been looked at."""
    return replace(facts, rows=rows, carried=carried)


def looked_at(facts: ExecutionFacts) -> Iterable[Finding]:
    assert facts.rows is not None
    by_status: dict[str, int] = {}
    for row in facts.rows:
        by_status[row.status] = by_status.get(row.status, 0) + 1
    shown = ", ".join(f"{status} {count}" for status, count in by_status.items()) or "none under way"
    if facts.looked < facts.there:
        yield note(
            "executions.looked_at",
            f"the first {facts.looked} of {facts.there} ({shown})",
            "",
            "looking is bounded, so the rest was not judged",
            f"plaita reindex --requeue{facts.of_tenant} goes through all of them",
        )
    else:
        yield fine("executions.looked_at", shown)


def lost(facts: ExecutionFacts) -> Iterable[Finding]:
    """Should move, held by nobody, no carrier for it: it stands still for ever."""
    assert facts.rows is not None
    idle = without_holder(facts)
    if facts.disabled:
        yield note(
            "executions.lost",
            f"tenant {facts.tenant} is disabled: {plural(len(idle), 'execution')} wait",
            "",
            "carriers of a disabled tenant are dropped, so its executions stand still until it is enabled",
            f"plaita tenant enable {facts.tenant} gives each a carrier again",
        )
        return
    if facts.carried is None:
        if idle:
            yield note(
                "executions.lost",
                f"not known for {plural(len(idle), 'execution')}",
                "0 without a carrier",
                f"the queue holds more than the {facts.carriers_looked} carriers that were looked at",
                f"plaita reindex --requeue{facts.of_tenant} looks through all of it",
            )
        return
    names = [row.execution_id for row in idle if row.execution_id not in facts.carried]
    if names:
        yield error(
            "executions.lost",
            f"{plural(len(names), 'execution')} without holder and carrier: {sample(names)}",
            "0",
            "nothing will ever move these on",
            f"plaita reindex --requeue{facts.of_tenant}",
        )
    else:
        yield fine("executions.lost", "0 without holder and carrier", "0")


def _should_move(row: Row) -> bool:
    return row.status in ("pending", "running") or (row.status == "suspended" and row.woken)


def holders(facts: ExecutionFacts) -> Iterable[Finding]:
    assert facts.rows is not None
    if not facts.registry.readable:
        return
    alive = {f"{one.instance_id}/{one.incarnation}" for one in facts.registry.instances}
    held = [row for row in facts.rows if row.holder]
    dead = [row for row in held if row.holder not in alive]
    if dead:
        who = sample(sorted({row.holder.rpartition("/")[0] or row.holder for row in dead}))
        yield note(
            "executions.dead_holders",
            f"{len(dead)} held by {who}, not registered: {sample([row.execution_id for row in dead])}",
            "0",
            f"the leases run out by themselves (within {facts.lease_ttl_s:g} s), then others go on; a supervisor with "
            "--no-registry looks the same",
            "wait and look again; start a supervisor if none runs",
        )
    silent = [
        row for row in held
        if row.holder in alive and row.open_s is not None and row.quiet_s > max(HEARTBEATS * facts.heartbeat_s, LOST_S)
    ]  # fmt: skip
    if silent:
        yield warning(
            "executions.silent",
            f"{len(silent)} held without a heartbeat: "
            + sample([f"{row.execution_id} ({row.holder.rpartition('/')[0]}, {span(row.quiet_s)})" for row in silent]),
            f"a heartbeat each {facts.heartbeat_s:g} s",
            "their supervisor renews the lease and writes nothing: it hangs, or a write is refused",
            "plaita-supervisor status on that host",
        )


def long_steps(facts: ExecutionFacts) -> Iterable[Finding]:
    assert facts.rows is not None
    running = [row for row in facts.rows if row.holder and row.open_s is not None and row.open_s > LONG_STEP_S]
    if not running:
        return
    running.sort(key=lambda row: -(row.open_s or 0))
    longest = running[0].open_s or 0
    grave = warning if longest > VERY_LONG_STEP_S else note
    yield grave(
        "executions.long_steps",
        f"{plural(len(running), 'step')} open for more than {span(LONG_STEP_S)}: "
        + sample([f"{row.execution_id} at {row.node} ({span(row.open_s or 0)})" for row in running]),
        "",
        "a step without a timeout may hang for ever, and holds an executor",
        f"plaita show {running[0].execution_id}{facts.of_tenant}; plaita-supervisor status names what takes far longer "
        f"than usual; plaita cancel {running[0].execution_id}{facts.of_tenant} ends it",
    )


def waits(facts: ExecutionFacts) -> Iterable[Finding]:
    assert facts.rows is not None
    waiting = [row for row in facts.rows if row.status == "suspended" and row.due_s is not None and not row.woken]
    gone = [row for row in waiting if not row.timer]
    if gone:
        names = [row.execution_id for row in gone]
        overdue = [row.execution_id for row in gone if (row.due_s or 0) < -OVERDUE_S]
        yield error(
            "executions.timers",
            f"{plural(len(gone), 'wait')} with a deadline and without a timer, {len(overdue)} overdue: "
            + sample(overdue or names),
            "a timer for each deadline",
            "the deadline will pass and nothing happens: the delayed set was lost, or a part of it",
            f"plaita reindex{facts.of_tenant} makes them anew; what is overdue times out at once then",
        )
    late = [row for row in waiting if row.timer and (row.due_s or 0) < -OVERDUE_S]
    if late:
        yield warning(
            "executions.overdue",
            f"{plural(len(late), 'wait')} overdue: {sample([row.execution_id for row in late])}",
            "0",
            "nobody moves what is due",
            "see queue.delayed: start a supervisor on this queue",
        )


Check = Callable[[ExecutionFacts], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (looked_at, lost, holders, long_steps, waits)


def judge(facts: ExecutionFacts) -> list[Finding]:
    """All of the table, in its order; one note where this user may not look."""
    if facts.rows is None:
        return [note("executions.looked_at", "not allowed to look", "", "this Redis user may not read executions")]
    return [finding for check in CHECKS for finding in check(facts)]

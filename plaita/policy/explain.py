"""Why this host takes work, or does not: one answer for status, explain, watchdog and metrics (CONTRACT "explain").

Facts in, rows of gates and a verdict out. A gate of the *host*, while shut, keeps every carrier away; one of a *part*
keeps some carriers away, and the host goes on with others. Pure: the clock is a fact, and what was said before is one
(for since when something has been so).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum

from plaita.policy.generations import ADVICE, Fit

UNTAKEN_MS = 10_000  # carriers that wait for so long beside a host with nothing in hand are not on their way to it
INCOMPLETE_MS = 30_000  # an executor that is missing for so long is no longer one that is being replaced

# Of several shut gates the first here is the cause, the others may follow from it. ``status`` comes before all when
# somebody wanted it so, and after ``redis`` while it starts: a start waits for Redis.
_ORDER = ("redis", "failover", "writes", "disk", "pause", "status", "executors")
_DEGRADING = ("tenant epoch", "breaker", "services")  # of those that keep no carrier, or only some, away
_OTHERS = "for a target, a path or a repository of other hosts, or left for their tenant"
_NONE_STANDS = "none stands"
_KNOWN_STATES = {"draining": "it is draining", "stopping": "it is stopping", "stopped": "it has stopped"}
_CAUSES = {
    "redis": "Redis cannot be reached",
    "failover": "another Redis server may answer",
    "writes": "Redis takes no writes",
    "disk": "the disk is below its line",
    "pause": "it is paused",
    "executors": "no executor stands",
}


class Verdict(Enum):
    SERVING = "serving"
    DEGRADED = "degraded"  # it takes work, and something is wrong
    NOT = "not serving"


@dataclass(frozen=True, slots=True)
class Gate:
    """One row. ``since``: epoch ms of the last change; ``waiting``: carriers that wait because of it, None: not known;
    ``advice`` is empty while there is nothing to do."""

    name: str
    open: bool
    since: int | None = None
    value: str = ""
    limit: str = ""
    waiting: int | None = 0
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known at ``now`` (epoch ms). Counts of None: Redis was not, or could not be, asked.

    ``host``: the conditions of the host (redis, writes, status, pause, disk, failover), each with its advice for when
    it is shut. ``executors``, ``ready``, ``free``: wanted, standing, without work. ``in_hand``: carriers that are being
    worked on. ``unclaimed``: carriers that nobody works on. ``parts``: gates that others have judged (tenant quota,
    tenant epoch, breaker). ``registered``: None where none is wanted. ``stuck``: steps that take far longer than they
    do. ``template``: what the template is at that no executor can come from yet; '' while it stands. ``slowed``: why
    executors are replaced slower than they end.
    """

    now: int
    state: str
    host: Sequence[Gate]
    executors: int
    ready: int
    free: int
    in_hand: int = 0
    template: str = ""
    unclaimed: int | None = None
    other_family: int | None = None
    other_budget: int | None = None
    generations: str = ""
    parts: Sequence[Gate] = ()
    registered: bool | None = None
    stuck: int = 0
    slowed: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """``answer``: one line, why work is taken or not, and what to do. ``reasons``: everything that is wrong, in words.
    ``sinces``: since when each fact that nobody else dates has been so."""

    verdict: Verdict
    answer: str
    reasons: tuple[str, ...]
    gates: tuple[Gate, ...]
    sinces: dict[str, tuple[bool, int]]

    @property
    def serving(self) -> bool:
        """Whether it takes work."""
        return self.verdict is not Verdict.NOT

    @property
    def shut(self) -> list[str]:
        """The names of the gates that are shut, each once."""
        return list(dict.fromkeys(gate.name for gate in self.gates if not gate.open))

    @property
    def gauges(self) -> dict[str, bool]:
        """By gate: whether all of that name are open."""
        found: dict[str, bool] = {}
        for gate in self.gates:
            found[gate.name] = found.get(gate.name, True) and gate.open
        return found


def explain(facts: Facts, before: Explanation | None = None) -> Explanation:
    """The rows, the verdict and the answer. ``before``: the last explanation, None at the beginning."""
    dated = _Sinces(facts.now, before)
    host = [replace(gate, waiting=0 if gate.open else facts.unclaimed, advice=_shut(gate)) for gate in facts.host]
    gates = [*host, _executors(facts, dated), _generations(facts, dated)]
    for part in facts.parts:
        since = part.since if part.since is not None else dated.since(part.name, part.open)
        gates.append(replace(part, since=since, advice=_shut(part)))
    reasons = _wrong(facts, gates, dated)
    untaken = _untaken(facts, dated)
    cause = _cause(facts, gates)
    if cause is not None:
        verdict, answer = Verdict.NOT, _refusing(facts, cause, gates)
    else:
        verdict, answer = Verdict.DEGRADED if reasons else Verdict.SERVING, _taking(facts, gates, reasons, untaken)
    return Explanation(verdict, answer, tuple(reasons), tuple(gates), dated.found)


# -- rows -------------------------------------------------------------------------------------------


class _Sinces:
    """Dates what was so at every look, from the first of them on."""

    def __init__(self, now: int, before: Explanation | None) -> None:
        self._now = now
        self._before = {} if before is None else before.sinces
        self.found: dict[str, tuple[bool, int]] = {}

    def since(self, name: str, is_open: bool) -> int:
        was = self._before.get(name)
        since = was[1] if was is not None and was[0] == is_open else self._now
        self.found[name] = (is_open, since)
        return since

    def last(self, name: str) -> bool:
        """Whether it was open at the last look; open where there was none."""
        return self._before.get(name, (True, 0))[0]


def _shut(gate: Gate) -> str:
    return "" if gate.open else gate.advice


def _executors(facts: Facts, dated: _Sinces) -> Gate:
    is_open = facts.free > 0
    value = f"{facts.free} free of {facts.ready}" if facts.ready else _NONE_STANDS
    advice = "they are being started; see the log (executor.died, executor.spawn_failed)"
    if facts.ready:
        advice = "all are at work: see `plaita-supervisor executors`; raise --executors, or add a host"
    elif facts.template:
        value = f"{_NONE_STANDS}; {facts.template}"
        advice = "they are born when the template stands; what takes longer than --template-deadline is started again"
    if facts.slowed:
        value = f"{value}; {facts.slowed}"
        advice = (
            "it tries on by itself, at most each 10 s; see the last deaths in `status`, and executor.output in the log"
        )
        if facts.template:
            advice = "mend the node code, it tries on by itself, at most each 5 s; see template. in the log"
    return Gate(
        "executors",
        is_open,
        dated.since("executors", is_open),
        value,
        str(facts.executors),
        0 if is_open else facts.unclaimed,
        advice if facts.slowed or not is_open else "",
    )


def _generations(facts: Facts, dated: _Sinces) -> Gate:
    counts = ((Fit.OTHER_FAMILY, facts.other_family), (Fit.OTHER_BUDGET, facts.other_budget))
    known = [count for _, count in counts if count is not None]
    left = sum(known) if known else None
    is_open = dated.last("generations") if left is None else left == 0
    advice = " ".join(ADVICE[fit] for fit, count in counts if count)
    return Gate("generations", is_open, dated.since("generations", is_open), facts.generations, "", left, advice)


# -- the verdict --------------------------------------------------------------------------------------


def _cause(facts: Facts, gates: Iterable[Gate]) -> Gate | None:
    """What keeps all work away: the first that is shut. All executors at work is no such cause: the host serves."""
    shut = {gate.name: gate for gate in gates if not gate.open}
    if facts.ready:
        shut.pop("executors", None)
    if "status" in shut and facts.state in _KNOWN_STATES:
        return shut["status"]
    return next((shut[name] for name in _ORDER if name in shut), None)


def _untaken(facts: Facts, dated: _Sinces) -> int | None:
    """Since when carriers wait and this host has nothing in hand; None where it is not so. While nobody can count them
    it stays."""
    waits = facts.unclaimed > 0 if facts.unclaimed is not None else not dated.last("untaken")
    waits = waits and facts.free > 0 and facts.in_hand == 0
    since = dated.since("untaken", not waits)
    return since if waits and facts.unclaimed else None


def _wrong(facts: Facts, gates: Iterable[Gate], dated: _Sinces) -> list[str]:
    """What is wrong with a host that takes work; a full host and a tenant over its quota are not."""
    wrong = []
    if facts.registered is not None and facts.state in ("starting", "running"):
        since = dated.since("registry", facts.registered)
        if not facts.registered:
            wrong.append(f"the registry does not have this host, since {moment(since, facts.now)}")
    complete = facts.ready >= facts.executors
    since = dated.since("complete", complete)
    if not complete and facts.ready and facts.now - since > INCOMPLETE_MS:
        missing = facts.executors - facts.ready
        wrong.append(f"{missing} of {facts.executors} executors are missing since {moment(since, facts.now)}")
    if facts.slowed and facts.template:
        wrong.append(facts.slowed)  # those that stand serve on, and nobody follows them
    for gate in gates:
        if gate.name in _DEGRADING and not gate.open:
            wrong.append(f"{gate.name}: {gate.value}")
    return wrong


# -- the answer ---------------------------------------------------------------------------------------


def _refusing(facts: Facts, cause: Gate, gates: Iterable[Gate]) -> str:
    why = _CAUSES.get(cause.name, cause.name)
    if cause.name == "status":
        why = _KNOWN_STATES.get(facts.state, f"it is {facts.state}")
    told = cause.value if cause.name in ("redis", "failover", "writes", "disk") else ""
    if cause.name == "executors":
        told = cause.value.removeprefix(_NONE_STANDS).removeprefix("; ")
    detail = f" ({told})" if told else ""
    parts = [f"NOT taking work: {why}{detail} since {moment(cause.since, facts.now)}"]
    if facts.state in _KNOWN_STATES and facts.in_hand:
        parts.append(_count(facts.in_hand, "execution is left", "executions are left"))
    elif facts.unclaimed:
        parts.append(_count(facts.unclaimed, "carrier waits", "carriers wait"))
    also = [gate.name for gate in gates if not gate.open and gate.name in _ORDER and gate.name != cause.name]
    if facts.ready:
        also = [name for name in also if name != "executors"]
    if facts.state == "starting":
        also = [name for name in also if name != "status"]
    if also:
        parts.append(f"shut too: {', '.join(also)}")
    return _sentence(parts, cause.advice)


def _taking(facts: Facts, gates: Sequence[Gate], reasons: Sequence[str], untaken: int | None) -> str:
    parts = ["degraded, and taking work" if reasons else "serving", *reasons]
    advice = " ".join(dict.fromkeys(g.advice for g in gates if g.name in _DEGRADING and g.advice))
    executors = next(gate for gate in gates if gate.name == "executors")
    if not executors.open:
        parts.append(f"all {facts.ready} executors are at work since {moment(executors.since, facts.now)}")
        if facts.unclaimed:
            parts.append(_count(facts.unclaimed, "carrier waits", "carriers wait"))
            advice = advice or "raise --executors, or add a host"
    else:
        parts.append(f"{facts.ready - facts.free} of {facts.executors} executors at work")
    if untaken is not None and facts.now - untaken > UNTAKEN_MS:
        waiting = _count(facts.unclaimed or 0, "carrier waits", "carriers wait")
        parts.append(f"{waiting} that this host has not taken since {moment(untaken, facts.now)}: {_OTHERS}")
    if facts.slowed and facts.slowed not in reasons:
        parts.append(facts.slowed)
    if facts.stuck:
        parts.append(_count(facts.stuck, "step takes", "steps take") + " far longer than usual")
    return _sentence(parts, advice)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _sentence(parts: Sequence[str], advice: str) -> str:
    text = "; ".join(parts)
    return f"{text}. {advice[:1].upper()}{advice[1:]}" if advice else text


def moment(since: int | None, now: int) -> str:
    """``10:15:03 UTC``, with the date where it is more than 12 hours ago."""
    if since is None:
        return "an unknown time"
    there = datetime.fromtimestamp(since / 1000, tz=UTC)
    return there.strftime("%H:%M:%S UTC" if now - since < 12 * 3_600_000 else "%Y-%m-%d %H:%M UTC")

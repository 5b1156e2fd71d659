"""The queue: does somebody read it, how far behind are they, what lies where nobody looks (ledger Q, D5, C3, T3)?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from plaita.policy.doctor.finding import Finding, error, fine, note, plural, sample, span, warning
from plaita.policy.doctor.registry import RegistryFacts

PENDING_WARNING_S = 600.0  # of one that nobody has touched
OVERDUE_S = 30.0
CONSUMERS_MANY = 100
ALIVE_S = 15.0  # a consumer that asked within that time lives, registered or not
DLQ_WARNING = 10  # new ones in a day
DLQ_FULL = 0.9
BACKLOG_WARNING_S = 300.0


@dataclass(frozen=True, slots=True)
class Stream:
    """``kind``: the key's type, ``none`` where there is no key. ``group`` False: it lacks the consumer group. ``lag``:
    not yet read, None where the server cannot tell. Of pending entries: how many, how old the oldest is by its id, how
    long nobody has touched it. ``waiting_s``: age of the oldest entry that was not read yet, None for none."""

    name: str
    kind: str = "stream"
    length: int = 0
    group: bool = True
    pending: int = 0
    lag: int | None = 0
    oldest_s: float | None = None
    oldest_idle_s: float | None = None
    oldest_consumer: str = ""
    waiting_s: float | None = None


@dataclass(frozen=True, slots=True)
class Consumer:
    name: str
    pending: int
    idle_s: float


@dataclass(frozen=True, slots=True)
class Stamp:
    """So many of the pending carriers that were looked at name this family and this budget; '' for none."""

    family: str
    budget: str
    count: int


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """``streams`` None: this user may not look. ``overdue``: delayed deliveries due more than OVERDUE_S ago, the oldest
    by ``overdue_s``. ``causes``: dead letters of the last 24 h by cause, complete unless ``more_letters``. ``parked``:
    carriers over quota, by tenant, the largest first. ``events``: the log of events, None: not looked at."""

    streams: Sequence[Stream] | None
    registry: RegistryFacts
    events: Stream | None = None
    consumers: Sequence[Consumer] = ()
    delayed: int = 0
    overdue: int = 0
    overdue_s: float = 0.0
    letters: int = 0
    letters_max: int = 1000
    causes: Mapping[str, int] = field(default_factory=dict)
    more_letters: bool = False
    parked: Mapping[str, int] = field(default_factory=dict)
    stamps: Sequence[Stamp] = ()
    claim_min_idle_s: float = 60.0


def streams(facts: QueueFacts) -> Iterable[Finding]:
    for stream in facts.streams or ():
        if stream.kind not in ("stream", "none"):
            yield error(
                "queue.type",
                f"{stream.name} is a {stream.kind}",
                "a stream",
                "somebody uses this key for something else; plaita neither reads nor overwrites it",
                f"redis-cli RENAME {stream.name} {stream.name}:old, or another --queue-name",
            )
        elif stream.kind == "stream" and not stream.group:
            yield warning(
                "queue.group",
                f"{stream.name} has {plural(stream.length, 'entry', 'entries')} and no consumer group",
                "the group of the supervisors",
                "nobody reads it with these settings; a supervisor makes the group, from the first entry on",
                "start a supervisor, or correct --queue-name and --consumer-group",
            )
    if facts.streams and all(one.kind == "none" for one in facts.streams):
        yield note("queue.streams", "neither stream is there", "", "nothing was ever started, or all of it was lost",
                   "plaita list; after a loss: plaita reindex --requeue for each tenant")  # fmt: skip


def readers(facts: QueueFacts) -> Iterable[Finding]:
    """Is there anybody who takes work?"""
    if facts.streams is None or not facts.registry.readable:
        return
    running = [one for one in facts.registry.running if not one.queue or one.queue == facts.registry.queue]
    shut = [f"{one.instance_id} ({', '.join(one.shut)})" for one in running if one.shut]
    if len(shut) < len(running):
        if shut:
            yield note(
                "queue.readers",
                f"{len(shut)} of {plural(len(running), 'running instance')} take no work: {sample(shut)}",
                "all that run take work",
                "the others do what these would: pause by a person, disk by the disk guard, writes by the server",
                "plaita-supervisor explain on these hosts says what opens each; plaita-supervisor resume ends a pause",
            )
            return
        yield fine("queue.readers", plural(len(running), "running instance"), "1 or more")
        return
    if running:
        yield error(
            "queue.readers",
            f"{plural(len(running), 'running instance')}, none takes work: {sample(shut)}",
            "1 or more that take work",
            "all are shut by a gate: pause by a person, disk by the disk guard, writes by the server",
            "plaita-supervisor explain on these hosts says what opens each; plaita-supervisor resume ends a pause",
        )
        return
    there = [one for one in facts.streams if one.kind == "stream"]
    alive = [one.name for one in facts.consumers if one.idle_s <= ALIVE_S and one.name not in facts.registry.ghosts]
    waiting = sum((one.lag or 0) + one.pending for one in there)
    if alive:
        yield note(
            "queue.readers",
            f"none registered, but {sample(alive)} read",
            "a registered instance",
            "supervisors with --no-registry work unseen: others cannot tell their leases from those of the dead",
        )
        return
    grave = error if there else warning
    yield grave(
        "queue.readers",
        f"no running instance; {plural(waiting, 'carrier')} wait",
        "1 or more",
        "nobody takes work from this queue",
        "systemctl start plaita-supervisor on a host; plaita-supervisor status there says why it takes none",
    )


def backlog(facts: QueueFacts) -> Iterable[Finding]:
    for stream in facts.streams or ():
        if stream.kind != "stream" or not stream.group:
            continue
        lag = "unknown" if stream.lag is None else str(stream.lag)
        value = f"{stream.name}: {lag} not yet read, {stream.pending} in work"
        if stream.waiting_s is not None and stream.waiting_s > BACKLOG_WARNING_S:
            yield warning(
                "queue.lag",
                f"{value}, the oldest waits for {span(stream.waiting_s)}",
                f"a wait below {span(BACKLOG_WARNING_S)}",
                "more comes in than is done",
                "plaita-supervisor explain on each host (gates, free executors); more --executors, or more hosts",
            )
        else:
            yield fine("queue.lag", value)


def events(facts: QueueFacts) -> Iterable[Finding]:
    """Is there anybody who wakes those that wait for events?"""
    log = facts.events
    if log is None or log.kind == "none" or not log.length:
        return
    waiting = log.length if not log.group else log.lag or 0
    late = log.waiting_s is not None and log.waiting_s > BACKLOG_WARNING_S
    if log.kind != "stream" or not log.group or late:
        yield warning(
            "queue.events",
            f"{log.name}: {plural(waiting, 'event')} that nobody has read"
            + (f", the oldest for {span(log.waiting_s)}" if late and log.waiting_s else ""),
            f"read within {span(BACKLOG_WARNING_S)}",
            "executions that wait for them stand still, and the log grows",
            "start a supervisor without --no-services on this queue; its log says what keeps it from reading",
        )
    else:
        yield fine("queue.events", f"{log.name}: {waiting} not yet read, {log.pending} in work")


def pending(facts: QueueFacts) -> Iterable[Finding]:
    line = max(PENDING_WARNING_S, 3 * facts.claim_min_idle_s)
    for stream in facts.streams or ():
        if stream.oldest_idle_s is None or stream.oldest_s is None:
            continue
        if stream.oldest_idle_s > line:
            yield warning(
                "queue.oldest_pending",
                f"{stream.name}: taken by {stream.oldest_consumer} and untouched for {span(stream.oldest_idle_s)}",
                f"below {span(line)}",
                "its holder renews what it works on, and others reclaim what lies idle: this one is left by all",
                "see queue.generations and queue.readers; plaita-supervisor explain on each host",
            )
        elif stream.oldest_s > 86_400:
            yield note(
                "queue.oldest_pending",
                f"{stream.name}: in work for {span(stream.oldest_s)}, touched {span(stream.oldest_idle_s)} ago",
                "",
                "a long step, or one that is taken up again and again",
                "plaita list --status running; plaita-supervisor executors",
            )


def consumers(facts: QueueFacts) -> Iterable[Finding]:
    if not facts.registry.readable:
        return
    known = {one.consumer or one.instance_id for one in facts.registry.instances}
    dead = [
        one for one in facts.consumers if one.pending and one.name not in known and one.idle_s > facts.claim_min_idle_s
    ]
    if dead:
        held = sum(one.pending for one in dead)
        shown = [f"{one.name} ({one.pending}, quiet for {span(one.idle_s)})" for one in dead]
        longest = max(one.idle_s for one in dead)
        grave = warning if longest > 3 * facts.claim_min_idle_s + PENDING_WARNING_S else note
        yield grave(
            "queue.dead_consumers",
            f"{plural(held, 'carrier')} of consumers that are not registered: {sample(shown)}",
            "0",
            "running supervisors take these over once they lie idle and their leases have run out",
            "start a supervisor if none runs; if they stay: plaita-supervisor explain, and queue.generations here",
        )
    names = {one.name for one in facts.consumers}
    if len(names) > CONSUMERS_MANY:
        yield warning(
            "queue.consumers",
            f"{len(names)} names in the group, {len(known)} registered",
            f"at most {CONSUMERS_MANY}",
            "each start makes a new name, where instance ids change (a random container name)",
            "give supervisors a fixed --instance-id; empty names go by themselves while a supervisor runs",
        )


def delayed(facts: QueueFacts) -> Iterable[Finding]:
    if facts.overdue:
        yield error(
            "queue.delayed",
            f"{facts.overdue} of {facts.delayed} overdue, the oldest by {span(facts.overdue_s)}",
            f"none overdue by more than {OVERDUE_S:g} s",
            "nobody moves what is due: retries and time limits of waits stand still",
            "start a supervisor on this queue; plaita-supervisor explain where one runs",
        )
    elif facts.streams is not None:
        yield fine("queue.delayed", f"{facts.delayed}, none overdue", "none overdue")


def dead_letters(facts: QueueFacts) -> Iterable[Finding]:
    if facts.streams is None:
        return
    recent = sum(facts.causes.values())
    more = " or more" if facts.more_letters else ""
    by_cause = ", ".join(
        f"{cause} {count}" for cause, count in sorted(facts.causes.items(), key=lambda one: -one[1])[:6]
    )
    if recent:
        grave = warning if recent >= DLQ_WARNING else note
        yield grave(
            "queue.dead_letters",
            f"{recent}{more} in the last 24 h ({by_cause}); {facts.letters} in all",
            "0",
            "these could not be run, and wait for a person",
            "plaita dlq list; then correct the cause and plaita dlq replay",
        )
    elif facts.letters:
        yield note(
            "queue.dead_letters",
            f"{facts.letters}, none in the last 24 h",
            "0",
            "these wait for a person",
            "plaita dlq list",
        )
    else:
        yield fine("queue.dead_letters", "0", "0")
    if facts.letters >= DLQ_FULL * facts.letters_max:
        yield warning(
            "queue.dead_letters_full",
            f"{facts.letters} of {facts.letters_max}",
            f"below {DLQ_FULL:.0%}",
            "beyond the limit the oldest are lost for good",
            "plaita dlq list; replay or purge them, or raise PLAITA_DLQ_MAX_LEN",
        )


def parked(facts: QueueFacts) -> Iterable[Finding]:
    if facts.parked:
        shown = [f"{tenant} {count}" for tenant, count in sorted(facts.parked.items(), key=lambda one: -one[1])]
        total = sum(facts.parked.values())
        yield note(
            "queue.parked",
            f"{plural(total, 'carrier')} over quota: {sample(shown)}",
            "",
            "they wait until executions of their tenant end",
            "plaita tenant status TENANT; plaita tenant quota TENANT N gives more room",
        )


def left_alone(facts: QueueFacts) -> Iterable[Finding]:
    """Carriers that no registered host may run, for their family or budget (ledger C3)."""
    if not facts.registry.instances:
        return
    families = {one.family for one in facts.registry.instances}
    budgets = {one.budget for one in facts.registry.instances}
    strangers = [one for one in facts.stamps if one.family and "" not in families and one.family not in families]
    if strangers:
        count = sum(one.count for one in strangers)
        yield error(
            "queue.generations",
            f"{plural(count, 'carrier')} of family {sample(sorted({one.family for one in strangers}))}",
            f"family {sample(sorted(families))}",
            "no host that runs understands them: they stay pending until one of their family comes",
            "give their producer our --queue-name, --consumer-group, --dlq-key, --key-prefix, or run one with theirs",
        )
    old = [
        one for one in facts.stamps
        if one not in strangers and one.budget and "" not in budgets and one.budget not in budgets
    ]  # fmt: skip
    if old:
        count = sum(one.count for one in old)
        yield warning(
            "queue.generations",
            f"{plural(count, 'carrier')} of budget {sample(sorted({one.budget for one in old}))}",
            f"budget {sample(sorted(budgets))}",
            "they were made under another budget, and are left to hosts that have it",
            "run a supervisor with the old deliveries, lease TTL and age limit until they are done",
        )


Check = Callable[[QueueFacts], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    readers, streams, backlog, events, pending, consumers, delayed, dead_letters, parked, left_alone,
)  # fmt: skip


def judge(facts: QueueFacts) -> list[Finding]:
    """All of the table, in its order; one note where this user may not look."""
    if facts.streams is None:
        return [
            note("queue.streams", "not allowed to look", "", "this Redis user may not read the streams of the queue")
        ]
    return [finding for check in CHECKS for finding in check(facts)]

"""Who is registered, read from the records in Redis; and whether they fit together: versions, families, budgets, node
types, deployments (ledger C2, C3, T2). Every other area asks here who lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plaita.policy import tenants
from plaita.policy.doctor.finding import Finding, epoch_s, error, fine, note, plural, sample, span, warning

STALE_S = 90.0  # three lives of a record


@dataclass(frozen=True, slots=True)
class Instance:
    """A registry record; what it does not say, or says in another type, is empty. ``silent_s``: since its heartbeat, by
    the server's clock, None where it names none that can be read. ``shut``: gates by which it takes no work.
    ``services`` False: it runs none."""

    instance_id: str
    incarnation: str = ""
    status: str = ""
    version: str = ""
    consumer: str = ""
    queue: str = ""
    family: str = ""
    generation: str = ""
    budget: str = ""
    schema_version: str = ""
    epoch: str = ""
    node_types: frozenset[str] = frozenset()
    silent_s: float | None = None
    shut: tuple[str, ...] = ()
    services: bool = True


@dataclass(frozen=True, slots=True)
class RegistryFacts:
    """``readable`` False: this user may not look. ``ghosts``: ids in the list of instances whose record has run out,
    ``unreadable``: whose record is no JSON object. ``complete`` False: there are more than were looked at.
    ``expected_epoch``: of this deployment; ``epoch``: beside the statuses of tenants, of which there are
    ``tenant_statuses``."""

    instances: Sequence[Instance] = ()
    ghosts: Sequence[str] = ()
    unreadable: Sequence[str] = ()
    complete: bool = True
    readable: bool = True
    epoch: str = ""
    expected_epoch: str = ""
    tenant_statuses: int = 0
    own_version: str = ""
    own_family: str = ""
    queue: str = field(default="")

    @property
    def running(self) -> list[Instance]:
        return [one for one in self.instances if one.status == "running"]


def read_record(instance_id: str, incarnation: str, record: Mapping[str, Any], silent_s: float | None) -> Instance:
    """A record as ``supervisor/registrar.py`` writes it, or any other: nothing here raises."""

    def text(value: object) -> str:
        return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""

    def part(name: str) -> Mapping[str, Any]:
        found = record.get(name)
        return found if isinstance(found, Mapping) else {}

    generations, config = part("generations"), part("config")
    return Instance(
        instance_id=instance_id,
        incarnation=incarnation,
        status=text(record.get("status")),
        version=text(record.get("plaita_version")),
        consumer=text(record.get("consumer")),
        queue=text(record.get("queue")),
        family=text(generations.get("config_family")),
        generation=text(generations.get("config_generation")),
        budget=text(generations.get("budget_generation")),
        schema_version=text(record.get("schema_version")),
        epoch=text(config.get("deployment_epoch")),
        node_types=frozenset(_names(record.get("node_types"))),
        silent_s=silent_s,
        services=config.get("services") is not False,
        shut=_names(record.get("shut")) or (("pause",) if record.get("paused") is True else ()),
    )


def _names(value: object) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def silence_s(record: Mapping[str, Any], now_ms: float | None) -> float | None:
    """Since the heartbeat that a record names, as seen at ``now_ms``."""
    said = epoch_s(record.get("last_heartbeat"))
    return None if now_ms is None or said is None else now_ms / 1000 - said


# -- who lives ------------------------------------------------------------------------------------


def records(facts: RegistryFacts) -> Iterable[Finding]:
    if facts.ghosts:
        yield note(
            "registry.ended",
            f"{len(facts.ghosts)} ended without a word in the last day: {sample(facts.ghosts)}",
            "",
            "their records ran out: they were killed, cut off, or still are",
            "plaita-supervisor status on those hosts; the names go by themselves after a day",
        )
    if not facts.complete:
        yield note(
            "registry.many",
            f"more than {len(facts.instances) + len(facts.ghosts) + len(facts.unreadable) - 1} names in the last day",
            "",
            "only the newest were looked at: instance ids change at each start (a random container name)",
            "give supervisors a fixed --instance-id",
        )
    if facts.unreadable:
        yield warning(
            "registry.unreadable",
            sample(facts.unreadable),
            "records of plaita",
            "nobody can tell whether these live; what they hold is left pending",
            "find out who writes them: redis-cli GET <prefix>:registry:flow_worker:<id>",
        )
    silent = [one for one in facts.instances if one.silent_s is not None and one.silent_s > STALE_S]
    if silent:
        shown = [f"{one.instance_id} ({span(one.silent_s or 0)})" for one in silent]
        yield warning(
            "registry.stale",
            sample(shown),
            f"a heartbeat within {STALE_S:g} s",
            "the record stands, and nobody renews it: that supervisor hangs, or its clock is wrong",
            "plaita-supervisor status on that host; systemctl restart plaita-supervisor there",
        )
    others = [one for one in facts.instances if one.status != "running"]
    if others:
        shown = [f"{one.instance_id} {one.status or 'unknown'}" for one in others]
        yield note(
            "registry.leaving",
            sample(shown),
            "",
            "these get no work",
            "plaita-supervisor undrain on a host that is meant to stay",
        )


# -- whether they fit -----------------------------------------------------------------------------


def _by(instances: Sequence[Instance], name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in instances:
        value = getattr(one, name)
        if value:
            found.setdefault(value, []).append(one.instance_id)
    return dict(sorted(found.items()))


def _shown(found: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{value}: {sample(ids)}" for value, ids in found.items())


def versions(facts: RegistryFacts) -> Iterable[Finding]:
    found = _by(facts.instances, "version")
    if len(found) > 1:
        yield note(
            "versions.plaita",
            _shown(found),
            "one version",
            "hosts of several versions share the work; meant to be so during an upgrade only",
            "upgrade the older hosts, one at a time: systemctl restart plaita-supervisor",
        )
    elif found:
        [(value, ids)] = found.items()
        yield fine("versions.plaita", f"{value} on {plural(len(ids), 'instance')}", "one version")
    if facts.own_version and found and facts.own_version not in found:
        yield note(
            "versions.command",
            f"this command is {facts.own_version}, no supervisor is",
            "a version that runs",
            "a command of another version may read or write what supervisors do not know",
            "use the command of the same installation, such as /opt/plaita/bin/plaita",
        )
    schemas = _by(facts.instances, "schema_version")
    if len(schemas) > 1:
        yield warning(
            "versions.schema",
            _shown(schemas),
            "one",
            "older hosts put carriers of the newer schema into the dead letters",
            "upgrade consumers first, then producers; then plaita dlq replay --match-reason schema",
        )


def generations(facts: RegistryFacts) -> Iterable[Finding]:
    here = [one for one in facts.instances if not facts.queue or not one.queue or one.queue == facts.queue]
    families = _by(here, "family")
    if len(families) > 1:
        yield error(
            "versions.family",
            _shown(families),
            "one config family on a queue",
            "hosts of different families leave each other's carriers alone: work of one stands still when its hosts go",
            "compare --queue-name, --consumer-group, --dlq-key and --key-prefix: plaita-supervisor check on each host",
        )
    elif families and facts.own_family and facts.own_family not in families:
        yield warning(
            "versions.family",
            f"the supervisors' is {next(iter(families))}, this command's {facts.own_family}",
            "the same",
            "what is started with these settings may be left alone by all supervisors there are",
            "give this command their queue settings: plaita-supervisor check on a host shows them",
        )
    budgets = _by(here, "budget")
    if len(budgets) > 1:
        yield warning(
            "versions.budget",
            _shown(budgets),
            "one budget generation",
            "carriers that were made under one budget are left to hosts that have it",
            "give all hosts the same lease TTL, deliveries, DLQ and age limits; drain the old ones last",
        )
    meanings = _by(here, "generation")
    if len(meanings) > 1 and len(families) < 2 and len(budgets) < 2:
        yield note(
            "versions.generation",
            f"{len(meanings)} config generations: {_shown(meanings)}",
            "one, unless hosts are meant to differ",
            "hosts differ in settings that stop nothing (executors, timeouts, paths)",
            "plaita-supervisor check on each host",
        )


def node_types(facts: RegistryFacts) -> Iterable[Finding]:
    """A carrier goes to any host: each must have every node type."""
    announcing = [one for one in facts.running if one.node_types]
    every = frozenset().union(*(one.node_types for one in announcing)) if announcing else frozenset()
    lacking = [(one.instance_id, sorted(every - one.node_types)) for one in announcing if every - one.node_types]
    if lacking:
        yield warning(
            "versions.node_types",
            "; ".join(f"{name} lacks {sample(types)}" for name, types in lacking[:5]),
            "the same node types everywhere",
            "a flow with such a node ends in error on a host that lacks it",
            "install and --preload the same modules on every host, then plaita-supervisor reload",
        )


def epoch(facts: RegistryFacts) -> Iterable[Finding]:
    expected = facts.expected_epoch
    trouble = tenants.epoch_trouble(facts.epoch, expected, strict=True)
    if trouble and facts.tenant_statuses:
        yield warning(
            "tenants.epoch",
            f"{facts.epoch or 'none'}, this deployment's is {expected}",
            expected,
            f"the epoch of tenant statuses is {trouble}: hosts of this deployment serve no tenant but the default",
            "plaita tenant enable TENANT from this deployment, or correct PLAITA_DEPLOYMENT_EPOCH",
        )
    known = _by(facts.instances, "epoch")
    if len(known) > 1:
        yield warning(
            "tenants.epochs",
            _shown(known),
            "one deployment epoch",
            "hosts of different deployments share a queue: only those whose epoch stands in Redis serve tenants",
            "set the same PLAITA_DEPLOYMENT_EPOCH on every host, and restart those that differ",
        )


Check = Callable[[RegistryFacts], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (records, versions, generations, node_types, epoch)


def judge(facts: RegistryFacts) -> list[Finding]:
    """All of the table, in its order; one note where this user may not look."""
    if not facts.readable:
        return [note("registry.instances", "not allowed to look", "", "this Redis user may not read the registry")]
    return [finding for check in CHECKS for finding in check(facts)]

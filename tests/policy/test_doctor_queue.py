"""The doctor's checks of queue, registry and executions, as tables; borders included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from plaita.policy.doctor import Finding, Severity, executions, queue, registry, worst
from plaita.policy.doctor.executions import ExecutionFacts, Row
from plaita.policy.doctor.queue import Consumer, QueueFacts, Stamp, Stream
from plaita.policy.doctor.registry import Instance, RegistryFacts

ONE = Instance("h1", "i1", "running", "1.0", "h1", "q", "cf1-a", "cfg1-a", "bg1-a", "1", "7", frozenset({"a"}), 5.0)
KNOWN = RegistryFacts(instances=(ONE,), queue="q", own_version="1.0", own_family="cf1-a")
QUIET = QueueFacts(streams=(Stream("q:wake"), Stream("q")), registry=KNOWN, consumers=(Consumer("h1", 0, 1.0),))
BUSY = Stream("q", length=5, pending=1, lag=4, oldest_s=10.0, oldest_idle_s=1.0, oldest_consumer="h1", waiting_s=1.0)
NOBODY = RegistryFacts(queue="q")


def severity(found: Sequence[Finding], check: str) -> str | None:
    """The gravest of a check; each that is no mere note names what to do."""
    mine = [one for one in found if one.check == check]
    assert all(one.why for one in mine if one.severity is not Severity.OK)
    assert all(one.action for one in mine if one.severity in (Severity.WARNING, Severity.ERROR)), mine
    return worst(mine).value if mine else None


# -- queue ----------------------------------------------------------------------------------------


def stream(**changes: Any) -> dict[str, Any]:
    return {"streams": (Stream("q:wake"), replace(BUSY, **changes))}


QUEUE_TABLE = [
    ("queue.readers", {}, "ok"),
    ("queue.readers", {"registry": NOBODY, "consumers": ()}, "error"),
    ("queue.readers", {"registry": NOBODY, "consumers": (), "streams": (Stream("q", kind="none"),)}, "warning"),
    ("queue.readers", {"registry": NOBODY, "consumers": (Consumer("h2", 0, 15.0),)}, "note"),  # --no-registry
    ("queue.readers", {"registry": NOBODY, "consumers": (Consumer("h2", 0, 16.0),)}, "error"),
    ("queue.readers", {"registry": replace(NOBODY, ghosts=("h2",)), "consumers": (Consumer("h2", 0, 1.0),)}, "error"),
    ("queue.readers", {"registry": replace(KNOWN, instances=(replace(ONE, shut=("disk",)),))}, "error"),
    ("queue.readers", {"registry": replace(KNOWN, instances=(ONE, replace(ONE, shut=("disk",))))}, "note"),
    (
        "queue.readers",
        {"registry": replace(KNOWN, instances=(replace(ONE, status="draining"),)), "consumers": ()},
        "error",
    ),
    ("queue.readers", {"registry": replace(KNOWN, instances=(replace(ONE, queue="other"),)), "consumers": ()}, "error"),
    ("queue.readers", {"registry": RegistryFacts(readable=False)}, None),
    ("queue.type", stream(kind="list"), "error"),
    ("queue.type", {}, None),
    ("queue.group", stream(group=False), "warning"),
    ("queue.group", {}, None),
    ("queue.streams", {"streams": (Stream("q", kind="none"), Stream("q:wake", kind="none"))}, "note"),
    ("queue.lag", stream(waiting_s=300.0), "ok"),
    ("queue.lag", stream(waiting_s=301.0), "warning"),
    ("queue.lag", stream(lag=None), "ok"),
    ("queue.events", {}, None),
    ("queue.events", {"events": Stream("q:events", kind="none")}, None),
    ("queue.events", {"events": Stream("q:events", group=False)}, None),
    ("queue.events", {"events": Stream("q:events", length=1, group=False)}, "warning"),
    ("queue.events", {"events": Stream("q:events", kind="list", length=1)}, "warning"),
    ("queue.events", {"events": Stream("q:events", length=9, lag=9, waiting_s=300.0)}, "ok"),
    ("queue.events", {"events": Stream("q:events", length=9, lag=9, waiting_s=301.0)}, "warning"),
    ("queue.events", {"events": Stream("q:events", length=9, lag=None)}, "ok"),
    ("queue.oldest_pending", stream(oldest_idle_s=600.0), None),
    ("queue.oldest_pending", stream(oldest_idle_s=601.0), "warning"),
    ("queue.oldest_pending", {**stream(oldest_idle_s=601.0), "claim_min_idle_s": 201.0}, None),
    ("queue.oldest_pending", stream(oldest_s=86_401.0), "note"),
    ("queue.dead_consumers", {"consumers": (Consumer("gone", 1, 61.0),)}, "note"),
    ("queue.dead_consumers", {"consumers": (Consumer("gone", 1, 60.0),)}, None),
    ("queue.dead_consumers", {"consumers": (Consumer("gone", 0, 1e6),)}, None),
    ("queue.dead_consumers", {"consumers": (Consumer("h1", 1, 1e6),)}, None),
    ("queue.dead_consumers", {"consumers": (Consumer("gone", 1, 781.0),)}, "warning"),
    ("queue.consumers", {"consumers": tuple(Consumer(f"c{n}", 0, 1.0) for n in range(100))}, None),
    ("queue.consumers", {"consumers": tuple(Consumer(f"c{n}", 0, 1.0) for n in range(101))}, "warning"),
    ("queue.delayed", {"delayed": 3}, "ok"),
    ("queue.delayed", {"delayed": 3, "overdue": 1, "overdue_s": 31.0}, "error"),
    ("queue.dead_letters", {}, "ok"),
    ("queue.dead_letters", {"letters": 5}, "note"),
    ("queue.dead_letters", {"letters": 9, "causes": {"SIGKILL": 9}}, "note"),
    ("queue.dead_letters", {"letters": 10, "causes": {"SIGKILL": 6, "exception": 4}}, "warning"),
    ("queue.dead_letters_full", {"letters": 899}, None),
    ("queue.dead_letters_full", {"letters": 900}, "warning"),
    ("queue.parked", {"parked": {"acme": 3}}, "note"),
    ("queue.parked", {}, None),
    ("queue.generations", {"stamps": (Stamp("cf1-a", "bg1-a", 5), Stamp("", "", 5))}, None),
    ("queue.generations", {"stamps": (Stamp("cf1-b", "bg1-a", 5),)}, "error"),
    ("queue.generations", {"stamps": (Stamp("cf1-a", "bg1-b", 5),)}, "warning"),
    ("queue.generations", {"stamps": (Stamp("cf1-b", "bg1-b", 5),), "registry": NOBODY}, None),  # queue.readers says it
]


@pytest.mark.parametrize(("check", "changes", "wanted"), QUEUE_TABLE)
def test_the_queue(check: str, changes: dict[str, Any], wanted: str | None) -> None:
    assert severity(queue.judge(replace(QUIET, **changes)), check) == wanted


def test_a_quiet_queue_is_fine_and_an_unreadable_one_a_note() -> None:
    assert worst(queue.judge(QUIET)) is Severity.OK
    assert [one.severity for one in queue.judge(replace(QUIET, streams=None))] == [Severity.NOTE]


def test_dead_letters_are_told_by_cause() -> None:
    [told] = [
        one for one in queue.judge(replace(QUIET, letters=12, causes={"exception": 2, "SIGKILL": 9}, more_letters=True))
        if one.check == "queue.dead_letters"
    ]  # fmt: skip
    assert told.value == "11 or more in the last 24 h (SIGKILL 9, exception 2); 12 in all"


# -- registry -------------------------------------------------------------------------------------


def with_second(**changes: Any) -> dict[str, Any]:
    return {"instances": (ONE, replace(ONE, instance_id="h2", **changes))}


REGISTRY_TABLE = [
    ("versions.plaita", {}, "ok"),
    ("versions.plaita", with_second(version="2.0"), "note"),
    ("versions.plaita", {"instances": ()}, None),
    ("versions.command", {"own_version": "2.0"}, "note"),
    ("versions.command", {}, None),
    ("versions.schema", with_second(schema_version="2"), "warning"),
    ("versions.schema", with_second(schema_version=""), None),
    ("versions.family", with_second(family="cf1-b"), "error"),
    ("versions.family", with_second(family="cf1-b", queue="other"), None),  # another queue has another family
    ("versions.family", {"own_family": "cf1-b"}, "warning"),
    ("versions.family", {"own_family": ""}, None),
    ("versions.budget", with_second(budget="bg1-b"), "warning"),
    ("versions.generation", with_second(generation="cfg1-b"), "note"),
    ("versions.generation", with_second(generation="cfg1-b", budget="bg1-b"), None),
    ("versions.node_types", with_second(node_types=frozenset({"a", "b"})), "warning"),
    ("versions.node_types", with_second(node_types=frozenset()), None),  # it announces none: nothing is known
    ("versions.node_types", with_second(node_types=frozenset({"b"}), status="stopping"), None),
    ("registry.ended", {"ghosts": ("h9",)}, "note"),
    ("registry.many", {"complete": False}, "note"),
    ("registry.unreadable", {"unreadable": ("h9",)}, "warning"),
    ("registry.stale", with_second(silent_s=90.0), None),
    ("registry.stale", with_second(silent_s=91.0), "warning"),
    ("registry.stale", with_second(silent_s=None), None),
    ("registry.leaving", with_second(status="draining"), "note"),
    ("tenants.epoch", {"expected_epoch": "7", "epoch": "7", "tenant_statuses": 1}, None),
    ("tenants.epoch", {"expected_epoch": "7", "epoch": "6", "tenant_statuses": 1}, "warning"),
    ("tenants.epoch", {"expected_epoch": "7", "epoch": "6"}, None),  # nobody has a status
    ("tenants.epoch", {"epoch": "6", "tenant_statuses": 1}, None),
    ("tenants.epochs", with_second(epoch="8"), "warning"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "changes", "wanted"), REGISTRY_TABLE)
def test_the_registry(check: str, changes: dict[str, Any], wanted: str | None) -> None:
    assert severity(registry.judge(replace(KNOWN, **changes)), check) == wanted


def test_an_unreadable_registry_is_a_note() -> None:
    assert [one.severity for one in registry.judge(RegistryFacts(readable=False))] == [Severity.NOTE]


def test_any_record_can_be_read() -> None:
    whole = {
        "status": "running",
        "plaita_version": "1.0",
        "consumer": "c",
        "queue": "q",
        "generations": {"config_family": "cf1-a", "config_generation": "cfg1-a", "budget_generation": "bg1-a"},
        "config": {"deployment_epoch": 7},
        "schema_version": 1,
        "node_types": ["a", 3],
        "last_heartbeat": "2026-11-30T08:00:00.000Z",
        "paused": True,
    }
    silent = registry.silence_s(whole, 1_796_025_600_000 + 30_000)
    assert registry.read_record("h", "i", whole, silent) == Instance(
        "h", "i", "running", "1.0", "c", "q", "cf1-a", "cfg1-a", "bg1-a", "1", "7", frozenset({"a"}), 30.0, ("pause",)
    )
    strange: list[dict[str, Any]] = [{}, {"generations": [], "config": 1, "node_types": "x", "status": None}]
    for record in strange:
        assert registry.read_record("h", "", record, None) == Instance("h")
    for said in (None, 5, "yesterday", "2026-11-30T08:00:00"):
        assert registry.silence_s({"last_heartbeat": said}, 1.0) is None


# -- executions -----------------------------------------------------------------------------------

RUNNING = Row("e", "running", 5.0, "n", open_s=5.0, holder="h1/i1")
IDLE = Row("e", "running", 61.0, "n")
WAITING = Row("e", "suspended", 1e6, due_s=100.0)


def of(*rows: Row, **changes: Any) -> ExecutionFacts:
    return ExecutionFacts(rows=rows, registry=KNOWN, looked=len(rows), there=len(rows), **changes)


EXECUTION_TABLE: list[tuple[str, ExecutionFacts, str | None]] = [
    ("executions.looked_at", of(RUNNING), "ok"),
    ("executions.looked_at", replace(of(RUNNING), there=20_000), "note"),
    ("executions.lost", of(RUNNING), "ok"),
    ("executions.lost", of(IDLE), "error"),
    ("executions.lost", of(replace(IDLE, quiet_s=60.0)), "ok"),
    ("executions.lost", of(replace(IDLE, status="pending")), "error"),
    ("executions.lost", of(replace(IDLE, status="suspended", woken=True)), "error"),
    ("executions.lost", of(replace(IDLE, status="suspended")), "ok"),
    ("executions.lost", of(IDLE, carried={"e"}), "ok"),
    ("executions.lost", of(IDLE, carried={"f"}), "error"),
    ("executions.lost", of(IDLE, carried=None), "note"),
    ("executions.lost", of(RUNNING, carried=None), None),
    ("executions.lost", of(IDLE, disabled=True, tenant="acme"), "note"),
    ("executions.dead_holders", of(RUNNING), None),
    ("executions.dead_holders", of(replace(RUNNING, holder="h1/i0")), "note"),  # an earlier life
    ("executions.dead_holders", of(replace(RUNNING, holder="of an old format")), "note"),
    ("executions.silent", of(replace(RUNNING, quiet_s=120.0)), None),
    ("executions.silent", of(replace(RUNNING, quiet_s=121.0)), "warning"),
    ("executions.silent", of(replace(RUNNING, quiet_s=121.0, open_s=None)), None),
    ("executions.silent", of(replace(RUNNING, quiet_s=61.0), heartbeat_s=5.0), "warning"),
    ("executions.long_steps", of(replace(RUNNING, open_s=3600.0)), None),
    ("executions.long_steps", of(replace(RUNNING, open_s=3601.0)), "note"),
    ("executions.long_steps", of(replace(RUNNING, open_s=86_401.0)), "warning"),
    ("executions.long_steps", of(replace(IDLE, open_s=86_401.0)), None),  # nobody runs it
    ("executions.timers", of(WAITING), None),
    ("executions.timers", of(replace(WAITING, timer=False)), "error"),
    ("executions.timers", of(replace(WAITING, timer=False, woken=True)), None),
    ("executions.timers", of(replace(WAITING, due_s=None)), None),
    ("executions.overdue", of(replace(WAITING, due_s=-30.0)), None),
    ("executions.overdue", of(replace(WAITING, due_s=-31.0)), "warning"),
]


@pytest.mark.parametrize(("check", "facts", "wanted"), EXECUTION_TABLE)
def test_executions(check: str, facts: ExecutionFacts, wanted: str | None) -> None:
    assert severity(executions.judge(facts), check) == wanted


def test_actions_name_the_tenant() -> None:
    told = executions.judge(of(IDLE, replace(WAITING, timer=False), tenant="acme"))
    acted = [one.action for one in told if one.severity is Severity.ERROR]
    assert len(acted) == 2
    assert all("--tenant acme" in action for action in acted)


def test_long_lists_are_cut() -> None:
    [told] = [
        one
        for one in executions.judge(of(*(replace(IDLE, execution_id=f"e{n}") for n in range(9))))
        if one.check == "executions.lost"
    ]
    assert told.value == "9 executions without holder and carrier: e0, e1, e2, e3, e4 and 4 more"


def test_who_may_not_look() -> None:
    assert [one.severity for one in executions.judge(replace(of(), rows=None))] == [Severity.NOTE]
    hidden = replace(of(replace(RUNNING, holder="x/y")), registry=RegistryFacts(readable=False))
    assert severity(executions.judge(hidden), "executions.dead_holders") is None

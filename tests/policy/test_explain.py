"""Why a host takes work, or does not (CONTRACT "explain", DECISIONS 36): facts in, verdict, answer and rows out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plaita.policy.explain import INCOMPLETE_MS, UNTAKEN_MS, Explanation, Facts, Gate, Verdict, explain

NOON = 1_764_504_000_000  # 2025-11-30T12:00:00Z
HOST = ("redis", "status", "pause", "disk", "writes", "failover")
ADVICE = {name: f"do something about {name}" for name in HOST}


def gates(*shut: str) -> tuple[Gate, ...]:
    return tuple(
        Gate(name, name not in shut, NOON - 60_000, f"{name} value", "limit", advice=ADVICE[name]) for name in HOST
    )


QUOTA = Gate("tenant quota", True, value="not full")
EPOCH = Gate("tenant epoch", True, value="fits")
WELL = Facts(
    now=NOON, state="running", host=gates(), executors=4, ready=4, free=3, unclaimed=0, other_family=0, other_budget=0,
    parts=(QUOTA, EPOCH), registered=True,
)  # fmt: skip


def row(found: Explanation, name: str) -> Gate:
    [gate] = [gate for gate in found.gates if gate.name == name]
    return gate


def test_every_gate_has_a_row_and_a_well_host_has_no_advice() -> None:
    found = explain(WELL)
    names = [gate.name for gate in found.gates]
    assert names == [*HOST, "executors", "generations", "tenant quota", "tenant epoch"]
    assert (found.verdict, found.serving, found.shut, found.reasons) == (Verdict.SERVING, True, [], ())
    assert all(gate.advice == "" and gate.waiting == 0 and gate.since is not None for gate in found.gates)
    assert found.answer == "serving; 1 of 4 executors at work"


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"host": gates("redis")}, "Redis cannot be reached (redis value) since 11:59:00 UTC; 7 carriers wait. Do som"),
        ({"host": gates("redis", "failover", "disk")}, "Redis cannot be reached (redis value) since 11:59:00 UTC; "
         "7 carriers wait; shut too: disk, failover."),
        ({"host": gates("failover")}, "another Redis server may answer (failover value) since"),
        ({"host": gates("writes")}, "Redis takes no writes (writes value) since"),
        ({"host": gates("disk"), "unclaimed": 1},
         "the disk is below its line (disk value) since 11:59:00 UTC; 1 carrier waits. Do"),
        ({"host": gates("pause"), "unclaimed": None}, "it is paused since 11:59:00 UTC. Do something about pause"),
        ({"host": gates("status"), "state": "draining", "in_hand": 2},
         "it is draining since 11:59:00 UTC; 2 executions are left. Do something about status"),
        ({"host": gates("status", "redis"), "state": "draining"}, "it is draining since 11:59:00 UTC; 7 carriers wait; "
         "shut too: redis."),
        ({"host": gates("status", "redis"), "state": "starting"},
         "Redis cannot be reached (redis value) since 11:59:00 UTC; 7 carriers wait. Do something about redis"),
        ({"state": "starting", "ready": 0, "free": 0, "template": "the template imports acme"},
         "no executor stands (the template imports acme) since 12:00:00 UTC; 7 carriers wait. They are born when"),
        ({"ready": 0, "free": 0, "template": "the template starts", "slowed": "it ended 3 times: no module acme"},
         "no executor stands (the template starts; it ended 3 times: no module acme) since 12:00:00 UTC; "
         "7 carriers wait. Mend the node code"),
        ({"host": gates("status"), "state": "stopping"}, "it is stopping since"),
        ({"ready": 0, "free": 0}, "no executor stands since 12:00:00 UTC; 7 carriers wait. They are being started"),
        ({"host": gates("pause"), "ready": 0, "free": 0}, "it is paused since 11:59:00 UTC; 7 carriers wait; shut too: "
         "executors."),
        ({"host": gates("pause"), "free": 0}, "it is paused since 11:59:00 UTC; 7 carriers wait. Do"),
    ],
)  # fmt: skip
def test_one_line_says_why_no_work_is_taken_and_what_to_do(changes: dict[str, object], answer: str) -> None:
    found = explain(replace(WELL, **{"unclaimed": 7, **changes}))  # type: ignore[arg-type]
    assert (found.verdict, found.serving) == (Verdict.NOT, False)
    assert found.answer.startswith(f"NOT taking work: {answer}"), found.answer


@pytest.mark.parametrize("name", HOST)
def test_each_gate_of_the_host_keeps_all_work_away_and_counts_it(name: str) -> None:
    found = explain(replace(WELL, host=gates(name), unclaimed=5, state="draining" if name == "status" else "running"))
    assert (found.verdict, found.shut) == (Verdict.NOT, [name])
    assert (row(found, name).waiting, row(found, name).advice) == (5, ADVICE[name])
    assert {gate.waiting for gate in found.gates if gate.name != name} == {0}
    assert found.gauges == {gate.name: gate.name != name for gate in found.gates}


def test_a_full_host_serves_and_says_since_when_it_is_full() -> None:
    first = explain(replace(WELL, free=0, unclaimed=9))
    assert (first.verdict, first.shut) == (Verdict.SERVING, ["executors"])
    later = explain(replace(WELL, free=0, unclaimed=8, now=NOON + 61_000), first)
    assert row(later, "executors").since == NOON
    assert row(later, "executors").waiting == 8
    assert later.answer == (
        "serving; all 4 executors are at work since 12:00:00 UTC; 8 carriers wait. Raise --executors, or add a host"
    )
    idle = explain(replace(WELL, now=NOON + 62_000), later)
    assert (row(idle, "executors").open, row(idle, "executors").since) == (True, NOON + 62_000)
    full_again = explain(replace(WELL, free=0, now=NOON + 63_000), idle)
    assert row(full_again, "executors").since == NOON + 63_000


def test_generations_shut_while_something_is_left_and_keep_their_date_when_redis_is_not_asked() -> None:
    first = explain(replace(WELL, other_family=2, other_budget=1))
    assert (row(first, "generations").open, row(first, "generations").waiting) == (False, 3)
    assert "--queue-name" in row(first, "generations").advice
    assert "drain" in row(first, "generations").advice
    assert first.verdict is Verdict.SERVING
    unasked = explain(replace(WELL, other_family=None, other_budget=None, now=NOON + 5_000), first)
    assert (row(unasked, "generations").open, row(unasked, "generations").since) == (False, NOON)
    assert row(unasked, "generations").waiting is None
    done = explain(replace(WELL, now=NOON + 9_000), unasked)
    assert (row(done, "generations").open, row(done, "generations").since) == (True, NOON + 9_000)


def test_parts_are_dated_and_their_advice_is_kept_while_shut_only() -> None:
    full = replace(QUOTA, open=False, value="full for acme", waiting=12, advice="wait")
    first = explain(replace(WELL, parts=(full, EPOCH)))
    later = explain(replace(WELL, parts=(full, replace(EPOCH, advice="unused")), now=NOON + 1000), first)
    assert (row(later, "tenant quota").since, row(later, "tenant quota").advice) == (NOON, "wait")
    assert row(later, "tenant epoch").advice == ""
    assert later.verdict is Verdict.SERVING, "a tenant over its quota is not the host's trouble"
    dated = replace(full, since=NOON - 5)
    assert row(explain(replace(WELL, parts=(dated, EPOCH))), "tenant quota").since == NOON - 5


def test_what_makes_a_host_degraded() -> None:
    shut = Gate("breaker", False, NOON, "f 1 n: 5 deaths", waiting=3, advice="look at the deaths")
    found = explain(replace(WELL, parts=(QUOTA, EPOCH, shut, replace(shut, value="f 1 m: 6 deaths"))))
    assert (found.verdict, found.serving, found.shut) == (Verdict.DEGRADED, True, ["breaker"])
    assert found.answer == (
        "degraded, and taking work; breaker: f 1 n: 5 deaths; breaker: f 1 m: 6 deaths; 1 of 4 executors at work. "
        "Look at the deaths"
    )
    assert found.gauges["breaker"] is False
    epoch = explain(replace(WELL, parts=(QUOTA, replace(EPOCH, open=False, value="older: 6 in Redis"))))
    assert (epoch.verdict, epoch.reasons) == (Verdict.DEGRADED, ("tenant epoch: older: 6 in Redis",))
    unregistered = explain(replace(WELL, registered=False))
    assert unregistered.verdict is Verdict.DEGRADED
    assert "registry" in unregistered.answer
    assert explain(replace(WELL, registered=None)).verdict is Verdict.SERVING, "--no-registry"
    early = explain(replace(WELL, state="starting", registered=False))  # works without an entry (ledger G3)
    assert early.verdict is Verdict.DEGRADED


def test_E1_a_service_that_fails_degrades_and_a_queue_server_that_is_away_does_not() -> None:
    away = explain(replace(WELL, parts=[Gate("queue server", False, NOON, "q:1/0: refused", advice="bring it back")]))
    assert (away.verdict, row(away, "queue server").advice) == (Verdict.SERVING, "bring it back")
    failed = explain(replace(WELL, parts=[Gate("services", False, NOON, "events: boom", advice="see the log")]))
    assert (failed.verdict, failed.reasons) == (Verdict.DEGRADED, ("services: events: boom",))
    assert failed.answer.endswith("See the log")


def test_executors_that_are_replaced_are_no_trouble_and_those_that_stay_away_are() -> None:
    first = explain(replace(WELL, ready=3))
    assert first.verdict is Verdict.SERVING
    soon = explain(replace(WELL, ready=2, now=NOON + INCOMPLETE_MS), first)
    assert soon.verdict is Verdict.SERVING
    later = explain(replace(WELL, ready=3, now=NOON + INCOMPLETE_MS + 1), soon)
    assert (later.verdict, later.reasons) == (
        Verdict.DEGRADED,
        ("1 of 4 executors are missing since 12:00:00 UTC",),
    )


def test_why_executors_are_replaced_slowly_is_told_whether_one_is_free_or_none_stands() -> None:
    slowed = "respawn slowed: 1 of 4 slots wait, the next for 3.2 s; the last: exit 1 before it said hello"
    found = explain(replace(WELL, ready=3, slowed=slowed))
    assert row(found, "executors").value == f"3 free of 3; {slowed}"
    assert "status" in row(found, "executors").advice
    assert slowed in found.answer
    none = explain(replace(WELL, ready=0, free=0, slowed=slowed))
    assert none.verdict is Verdict.NOT
    assert none.answer.startswith(f"NOT taking work: no executor stands ({slowed}) since")


def test_what_an_idle_host_does_not_take_is_told_once_it_is_no_moment() -> None:
    idle = replace(WELL, free=4)
    first = explain(replace(idle, unclaimed=3))
    assert first.answer == "serving; 0 of 4 executors at work"
    uncounted = explain(replace(idle, unclaimed=None, now=NOON + UNTAKEN_MS), first)
    later = explain(replace(idle, unclaimed=2, now=NOON + UNTAKEN_MS + 1), uncounted)
    assert later.verdict is Verdict.SERVING
    assert "at work; 2 carriers wait that this host has not taken since 12:00:00 UTC: for a target" in later.answer
    assert explain(replace(idle, now=NOON + UNTAKEN_MS + 2), later).answer == first.answer
    busy = explain(replace(idle, unclaimed=2, free=3, in_hand=1, now=NOON + UNTAKEN_MS + 3), later)
    assert "not taken" not in busy.answer
    again = explain(replace(idle, unclaimed=2, now=NOON + UNTAKEN_MS + 4), busy)
    assert again.answer == first.answer, "it took one meanwhile: it begins anew"


def test_DECISIONS_24_stuck_steps_are_named_and_do_not_degrade() -> None:
    found = explain(replace(WELL, stuck=1))
    assert found.verdict is Verdict.SERVING
    assert found.answer.endswith("1 step takes far longer than usual")


def test_a_date_is_told_once_it_is_long_ago() -> None:
    old = tuple(replace(gate, since=NOON - 13 * 3_600_000) for gate in gates("disk"))
    assert "since 2025-11-29 23:00 UTC" in explain(replace(WELL, host=old)).answer


def test_a_template_that_cannot_stand_is_told_while_executors_still_do() -> None:
    found = explain(replace(WELL, template="the template starts", slowed="the template ended 3 times: no module acme"))
    assert (found.verdict, found.reasons) == (Verdict.DEGRADED, ("the template ended 3 times: no module acme",))
    assert found.answer.count("no module acme") == 1
    assert "mend the node code" in row(found, "executors").advice
    births = explain(replace(WELL, slowed="respawn slowed"))
    assert births.verdict is Verdict.SERVING, "that goes over by itself, and the template stands"

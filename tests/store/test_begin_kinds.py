"""Which carrier begins which row, as one table; and what a begin that ends a wait or an error does (ledger S2 to S7,
S13)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from plaita.store import carriers, executions
from plaita.store.call import Refused, Value
from plaita.store.executions import ForeignStart, Retake

KINDS = ("start", "continue", "retry", "event", "timeout", "cancel")


@dataclass(frozen=True)
class Begins:
    """What a begin says that is not refused."""

    woken: str = ""
    waits: bool = False
    normalised: bool = False
    retried: bool = False


def pending(world):
    world.start()


def running(world):
    world.running()


def resuming(world):
    """Running, with the node of a wait that an event ended."""
    world.suspended()
    world.wake("first")
    world.begin(world.take_one(), nonce="n2", kind="event")


def cancelling(world):
    """Running, with a wait that nothing ended but a cancel's carrier."""
    world.suspended()
    world.begin(entry_for(world), nonce="n2", kind="cancel")


def suspended(world):
    world.suspended(timeout_ms=60_000)


def woken(world):
    world.suspended(timeout_ms=60_000)
    world.wake("first")


def to_be_cancelled(world):
    world.suspended(timeout_ms=60_000)
    world.do(executions.request_cancel(world.keys, "e", "enough", b"{}"))


def ended(status):
    def walk(world):
        entry, begun = world.running()
        world.finish(begun, entry, status=status)

    walk.__name__ = status
    return walk


error = ended("error")
RESUMES = ("event", "timeout")
TABLE = {
    pending: dict.fromkeys(KINDS, Begins()) | dict.fromkeys(RESUMES, Refused("no_checkpoint")),
    running: dict.fromkeys(KINDS, Begins()) | dict.fromkeys(RESUMES, Begins(normalised=True)),
    resuming: dict.fromkeys(KINDS, Begins("event", waits=True)),
    cancelling: dict.fromkeys(KINDS, Begins(waits=True)) | dict.fromkeys(RESUMES, Begins(waits=True, normalised=True)),
    suspended: dict.fromkeys(KINDS, Refused("suspended"))
    | {kind: Begins(kind, waits=True) for kind in RESUMES}
    | {"cancel": Begins(waits=True)},
    woken: dict.fromkeys(KINDS, Begins("event", waits=True)),
    to_be_cancelled: dict.fromkeys(KINDS, Begins(waits=True)),
    ended("completed"): dict.fromkeys(KINDS, Refused("terminal", "completed")),
    ended("cancelled"): dict.fromkeys(KINDS, Refused("terminal", "cancelled")),
    error: dict.fromkeys(KINDS, Refused("terminal", "error")) | {"retry": Begins(retried=True)},
}
CASES = [
    pytest.param(walk, kind, wanted, id=f"{walk.__name__}-{kind}")
    for walk, row in TABLE.items()
    for kind, wanted in row.items()
]


def entry_for(world):
    world.raw("XADD", world.keys.wake, "*", "payload", "x", "execution_id", "e", "tenant_id", "default")
    return next(entry for entry in world.take(100).entries if entry.fields[b"payload"] == b"x")


@pytest.mark.parametrize(("walk", "kind", "wanted"), CASES)
def test_S3_to_S7_every_kind_on_every_row(world, walk, kind: str, wanted):
    walk(world)
    entry = entry_for(world)
    world.raw("DEL", world.keys.lease("e"))
    before = world.everything()
    answer = world.begin(entry, nonce="x", kind=kind, data=b'{"late":1}', event_id="late")
    if isinstance(wanted, Refused):
        assert answer == wanted
        assert world.everything() == before, "a refusal changes nothing"
        return
    assert isinstance(answer, Value)
    begun = answer.value
    said = Begins(begun.woken, begun.wait != "", begun.normalised, begun.retried)
    assert said == wanted
    assert begun.control["status"] == "running"
    assert world.raw("ZRANGE", world.keys.index("running"), 0, -1) == [b"e"]
    assert all(world.raw("ZCARD", world.keys.index(status)) == 0 for status in ("pending", "suspended", "error"))
    assert world.raw("EXISTS", world.keys.delayed, world.keys.delayed_body) == 0, "no timer is left behind"

    before = world.everything()
    again = world.begin(entry, nonce="x", kind=kind, data=b'{"late":1}', event_id="late").value
    assert {**fields(again), "server_now_ms": 0} == {**fields(begun), "server_now_ms": 0}
    assert world.everything() == before


@pytest.mark.parametrize(("walk", "kind", "wanted"), CASES)
def test_L1_a_live_lease_comes_first_but_after_an_end(world, walk, kind: str, wanted):
    walk(world)
    entry = entry_for(world)
    lease = "v2 host9/x 9:y w 1-1"
    world.raw("SET", world.keys.lease("e"), lease)
    before = world.everything()
    terminal = isinstance(wanted, Refused) and wanted.reason == "terminal"
    assert world.begin(entry, nonce="x", kind=kind) == (wanted if terminal else Refused("leased", lease))
    assert world.everything() == before


def fields(begun):
    return {name: getattr(begun, name) for name in begun.__slots__}


@pytest.mark.parametrize(
    ("walk", "kind", "refusal"),
    [
        (error, "retry", Refused("terminal", "error")),
        (suspended, "event", Refused("suspended")),
        (suspended, "timeout", Refused("suspended")),
        (suspended, "cancel", Refused("suspended")),
    ],
)
def test_a_carrier_that_was_done_with_makes_nothing_run(world, walk, kind: str, refusal):
    """A host that stood still may send its begin long after another one did all of it; if it died then, nothing would
    be left that moves the execution."""
    walk(world)
    entry = entry_for(world)
    world.do(carriers.ack(world.keys, entry.stream, entry.entry_id))
    before = world.everything()
    assert world.begin(entry, nonce="x", kind=kind) == refusal
    assert world.everything() == before


# -- waits ----------------------------------------------------------------------------------------------------------


def test_S7_an_event_from_outside_ends_the_wait_with_its_data(world):
    world.suspended(timeout_ms=60_000)
    begun = world.begin(entry_for(world), nonce="x", kind="event", data=b'{"a":1}', event_id="ev9").value
    assert (begun.woken, begun.wake_data, begun.control["wake_id"], begun.wait) == ("event", b'{"a":1}', "ev9", "1")
    assert "wake_data" not in begun.control
    assert world.wake("ev9").value == executions.Woken("running", True, "")


def test_an_event_without_data_has_null(world):
    world.suspended()
    assert world.begin(entry_for(world), nonce="x", kind="timeout").value.wake_data == b"null"


def test_the_rows_own_data_count_and_not_the_carriers(world):
    world.suspended()
    world.wake("ev1")
    begun = world.begin(entry_for(world), nonce="x", kind="timeout", data=b'"other"', wait="0").value
    assert (begun.woken, begun.wake_data, begun.control["wake_id"]) == ("event", b'{"yes":1}', "ev1")


@pytest.mark.parametrize("kind", ["event", "timeout"])
def test_S6_a_carrier_of_an_earlier_wait_ends_no_later_one(world, kind: str):
    world.suspended()
    world.wake("ev1")
    entry = world.take_one()
    begun = world.begin(entry, nonce="n2", kind="event", wait="1").value
    world.suspend(begun, entry, 2)
    stale = entry_for(world)
    before = world.everything()
    assert world.begin(stale, nonce="x", kind=kind, wait="1") == Refused("stale_wait", "2")
    assert world.everything() == before
    assert world.begin(stale, nonce="x", kind=kind, wait="2").value.woken == kind


def test_S4_a_cancel_that_is_asked_for_begins_it_and_no_event_is_taken_for_its_end(world):
    world.suspended()
    world.do(executions.request_cancel(world.keys, "e", "enough", b"{}"))
    begun = world.begin(entry_for(world), nonce="x", kind="event", data=b"1", event_id="ev9").value
    assert (begun.cancel, begun.cancel_reason, begun.wait, begun.woken, begun.wake_data) == (
        True, "enough", "1", "", None,
    )  # fmt: skip
    assert begun.control["next_node"] == "w"


def test_S14_resuming_a_node_counts_its_losses_from_one(world):
    world.suspended()
    world.wake()
    entry = world.take_one()
    begun = world.begin(entry, nonce="n2", kind="event").value
    assert (begun.control["lost"], begun.control["lost_node"]) == ("1", "w")
    retake = Retake("e", begun.token, world.holder, "n3", 600_000, entry.stream, entry.entry_id, b"{}", 5)
    again = world.do(executions.retake(world.keys, retake))
    assert (again.control["lost"], again.wait, again.woken, again.wake_data) == ("2", "1", "event", b'{"yes":1}')
    assert (again.normalised, again.retried) == (False, False)


def test_a_resume_for_no_row_and_for_a_deleted_one(world):
    world.start()
    entry = world.take_one()
    assert world.begin(entry, "none", kind="event") == Refused("no_row")
    world.raw("HSET", world.keys.tombstone("e"), "default", "1 why")
    assert world.begin(entry, kind="retry") == Refused("tombstoned", "1 why")


# -- a retry of what ended in error -----------------------------------------------------------------------------------


def failed(world, **changes):
    """Committed once, then ended in error at its second step; the row has an end."""
    entry, begun = world.running()
    world.commit(begun)
    world.finish(begun, entry, 2, status="error", error=b'{"message":"no"}', **changes)


def test_S3_a_retry_goes_on_from_the_checkpoint_with_fresh_budgets(world):
    failed(world)
    world.raw("HSET", world.keys.row("e"), "last_error", "x", "failure", "y", "output", "z", "retried", ":a:b:")
    for node in (None, "a", "b"):
        world.raw("SET", world.keys.noderetry("e", node), 3)
    assert world.raw("PTTL", world.keys.row("e")) > 0
    begun = world.begin(entry_for(world), nonce="x", kind="retry").value
    row = world.row()
    assert begun.retried is True
    assert (row["status"], row["next_node"], row["step"], row["lost"], row["attempts"]) == (
        b"running", b"b", b"1", b"1", b"2",
    )  # fmt: skip
    assert not {"error", "ended_at", "last_error", "failure", "output", "retried"} & set(row)
    assert row["r:a"] == b'"done"'
    assert world.raw("KEYS", "*noderetry*") == []
    assert world.raw("ZCARD", world.keys.expiry) == 0
    for key in (world.keys.row("e"), world.keys.fence("e"), world.keys.fencegen("e")):
        assert world.raw("PTTL", key) == -1, "what runs has no end"
    assert isinstance(world.commit(begun, 2, "b", "c"), Value)


def test_S13_wakes_are_counted_and_the_third_is_refused(world):
    failed(world)
    key = world.keys.of_execution("g1wakeups", "e")
    for number in (1, 2):
        entry = entry_for(world)
        begun = world.begin(entry, nonce=f"x{number}", kind="retry").value
        assert world.raw("GET", key) == str(number).encode()
        assert 0 < world.raw("PTTL", key) <= 7 * 86_400_000
        world.begin(entry, nonce=f"x{number}", kind="retry")
        assert world.raw("GET", key) == str(number).encode(), "sent again it is the same wake"
        world.finish(begun, entry, 2, status="error")
    entry, before = entry_for(world), world.everything()
    assert world.begin(entry, nonce="x3", kind="retry") == Refused("g1_wakeups_exhausted", key)
    assert world.everything().keys() == before.keys()
    assert world.row()["status"] == b"error"
    world.raw("DEL", key)
    assert world.begin(entry, nonce="x3", kind="retry").value.retried is True


def test_S13_twelve_deterministic_failures_in_a_row(world):
    failed(world)
    key = world.keys.of_execution("nofail", "e")
    world.raw("SET", key, 11)
    entry = entry_for(world)
    begun = world.begin(entry, nonce="x", kind="retry").value
    assert world.raw("GET", key) == b"11", "a wake clears nothing"
    world.finish(begun, entry, 2, status="error", deterministic=True)
    assert world.raw("GET", key) == b"12"
    refused = Refused("deterministic_failure_exhausted", key)
    assert world.begin(entry_for(world), nonce="y", kind="retry") == refused


def test_S5_the_limits_are_for_what_ended_in_error_only(world):
    entry, begun = world.running()
    world.raw("SET", world.keys.of_execution("g1wakeups", "e"), 99)
    world.raw("SET", world.keys.of_execution("nofail", "e"), 99)
    world.raw("DEL", world.keys.lease("e"))
    begun = world.begin(entry, nonce="x", kind="retry").value
    assert begun.retried is False
    assert world.raw("GET", world.keys.of_execution("g1wakeups", "e")) == b"99"


def test_S13_deterministic_failures_are_counted_at_the_end_once(world):
    key = world.keys.of_execution("nofail", "e")
    entry, begun = world.running()
    for _ in range(2):
        world.finish(begun, entry, status="error", deterministic=True)
        assert world.raw("GET", key) == b"1"
    begun = world.begin(entry_for(world), nonce="x", kind="retry").value
    world.finish(begun, entry, status="error", deterministic=False)
    assert world.raw("GET", key) == b"1"


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_S13_only_an_error_counts(world, status: str):
    entry, begun = world.running()
    world.finish(begun, entry, status=status, deterministic=True)
    assert world.raw("EXISTS", world.keys.of_execution("nofail", "e")) == 0


def test_S13_without_retention_the_count_has_its_seven_days(world):
    entry, begun = world.running()
    world.finish(begun, entry, status="error", deterministic=True, retention_ms=0)
    assert 0 < world.raw("PTTL", world.keys.of_execution("nofail", "e")) <= 7 * 86_400_000


def test_the_end_sent_again_after_a_retry_changes_nothing(world):
    entry, begun = world.running()
    world.finish(begun, entry, status="error")
    world.begin(entry_for(world), nonce="x", kind="retry")
    before = world.everything()
    assert world.finish(begun, entry, status="error").value.done_before is True
    assert world.everything() == before


# -- the dedup key of a foreign start (ledger S2) ---------------------------------------------------------------------


def foreign(world, execution_id, key="order", nonce="x", **changes):
    entry_id = world.raw("XADD", world.keys.queue, "*", "payload", "{}").decode()
    entry = next(entry for entry in world.take(100).entries if entry.entry_id == entry_id)
    start = ForeignStart(**({"flow_id": "f", "version": "latest", "input": b"1", "dedup_key": key} | changes))
    return world.begin(entry, execution_id, nonce=nonce, foreign=start)


def test_S2_a_foreign_start_claims_its_key_with_its_row(world):
    assert isinstance(foreign(world, "e"), Value)
    claim = world.keys.start_dedup("order")
    assert world.raw("GET", claim) == b"e"
    assert 0 < world.raw("PTTL", claim) <= 7 * 86_400_000
    assert world.row()["dedup_key"] == b"order"


def test_S2_the_second_start_meets_the_first(world):
    foreign(world, "e:1")
    before = world.everything()
    answer = foreign(world, "other")
    assert answer == Refused("dedup_hit", "running e:1")
    assert world.keys.row("other").encode() not in world.everything()
    assert world.everything()[world.keys.start_dedup("order").encode()] == before[b"plaita:start-dedup:order"]
    assert isinstance(foreign(world, "third", "another order"), Value)


def test_S2_a_claim_whose_row_never_came_is_claimed_anew(world):
    world.raw("SET", world.keys.start_dedup("order"), "gone")
    assert isinstance(foreign(world, "e"), Value)
    assert world.raw("GET", world.keys.start_dedup("order")) == b"e"


def test_S2_a_start_that_is_delivered_again_is_its_own(world):
    foreign(world, "e")
    world.raw("DEL", world.keys.lease("e"))
    assert isinstance(foreign(world, "e", nonce="y"), Value)
    world.raw("DEL", world.keys.row("e"), world.keys.lease("e"))
    assert isinstance(foreign(world, "e", nonce="z"), Value), "its own claim is no other's"


def test_S2_a_start_of_a_flow_that_is_not_there_claims_nothing(world):
    assert foreign(world, "e", flow_id="none") == Refused("no_flow")
    assert world.raw("EXISTS", world.keys.start_dedup("order")) == 0


@pytest.mark.parametrize(("claimed_by", "left"), [("e", None), ("other", b"other")])
def test_D2_a_start_of_a_deleted_one_releases_its_own_claim(world, claimed_by: str, left):
    world.raw("HSET", world.keys.tombstone("e"), "default", "1 why")
    world.raw("SET", world.keys.start_dedup("order"), claimed_by)
    assert foreign(world, "e") == Refused("tombstoned", "1 why")
    assert world.raw("GET", world.keys.start_dedup("order")) == left


# -- a start that has become too old (ledger D2, D3) -------------------------------------------------------------------


def server_ms(world) -> int:
    seconds, micro = world.raw("TIME")
    return int(seconds) * 1000 + int(micro) // 1000


def test_D3_a_foreign_start_that_is_too_old_by_the_servers_clock_makes_no_row_and_claims_nothing(world):
    answer = foreign(world, "e", too_old_after_ms=server_ms(world) - 1)
    assert (answer.reason, int(answer.detail) <= server_ms(world)) == ("too_old", True)
    for key in (world.keys.row("e"), world.keys.start_dedup("order"), world.keys.lease("e"), world.keys.fencegen("e")):
        assert world.raw("EXISTS", key) == 0
    assert isinstance(foreign(world, "e", nonce="y", too_old_after_ms=server_ms(world) + 60_000), Value)


def test_D3_a_row_that_is_there_goes_on_whatever_the_age_of_its_start(world):
    foreign(world, "e")
    world.raw("DEL", world.keys.lease("e"))
    assert isinstance(foreign(world, "e", nonce="y", too_old_after_ms=1), Value)


def test_D2_D3_judged_before_the_tombstone_ended_and_begun_after_it(world):
    """The supervisor's judgement of the age and the begin are two moments; between them a tombstone may end."""
    young_enough_until = server_ms(world) + 1
    world.raw("HSET", world.keys.tombstone("e"), "default", "1 why")
    world.raw("PEXPIREAT", world.keys.tombstone("e"), young_enough_until)
    while world.raw("EXISTS", world.keys.tombstone("e")) or server_ms(world) <= young_enough_until:
        pass
    answer = foreign(world, "e", too_old_after_ms=young_enough_until)
    assert (answer.reason, world.raw("EXISTS", world.keys.row("e"))) == ("too_old", 0)


def test_D2_a_dedup_key_of_a_deleted_execution_is_claimed_anew_also_when_its_row_came_back(world):
    foreign(world, "e:1")
    dump = world.raw("DUMP", world.keys.row("e:1"))
    world.do(executions.delete(world.keys, "e:1", "why", force=True, tombstone_ttl_ms=60_000))
    world.raw("RESTORE", world.keys.row("e:1"), 0, dump)
    world.raw("SET", world.keys.start_dedup("order"), "e:1")
    assert isinstance(foreign(world, "other"), Value)
    assert world.raw("GET", world.keys.start_dedup("order")) == b"other"

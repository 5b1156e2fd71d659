"""request_resume: who gets a carrier, and why not (ledger S3, S4, S5, S13)."""

from __future__ import annotations

import pytest

from plaita.store import executions
from plaita.store.call import Refused, Value
from plaita.store.executions import Resumed


def sent(world):
    return [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in world.raw("XRANGE", world.keys.wake, "-", "+")]


@pytest.mark.parametrize("kind", ["continue", "retry"])
def test_S5_what_nobody_holds_gets_a_carrier(world, kind: str):
    world.start()
    assert world.resume(kind) == Value(Resumed("pending", True, ""))
    assert sent(world) == [
        {
            b"payload": b"resume", b"schema_version": b"1", b"execution_id": b"e", b"tenant_id": b"default",
            b"flow_id": b"f",
        }
    ]  # fmt: skip
    entry = world.take_one()
    world.begin(entry)
    world.raw("DEL", world.keys.lease("e"))
    before = world.row()
    assert world.resume(kind, nonce="r2") == Value(Resumed("running", True, ""))
    assert world.row() == before | {"resumed_by": b"r2"}


@pytest.mark.parametrize("kind", ["continue", "retry"])
def test_where_the_stream_takes_nothing_the_same_call_sent_again_is_not_taken_for_done(world, kind: str):
    world.start()
    world.raw("SET", world.keys.wake, "no stream")
    before = world.everything()
    assert not isinstance(world.resume(kind), Value)
    assert world.everything() == before
    world.raw("DEL", world.keys.wake)
    assert world.resume(kind) == Value(Resumed("pending", True, ""))
    assert len(sent(world)) == 1


def nothing(world, kind, wanted):
    before = world.everything()
    assert world.resume(kind) == Value(wanted)
    assert world.everything() == before


@pytest.mark.parametrize("kind", ["continue", "retry"])
def test_what_is_held_gets_none(world, kind: str):
    _, begun = world.running()
    nothing(world, kind, Resumed("running", False, "held", begun.lease_value))


@pytest.mark.parametrize("status", ["completed", "cancelled", "error"])
def test_S3_what_has_ended_is_not_continued(world, status: str):
    entry, begun = world.running()
    world.finish(begun, entry, status=status)
    nothing(world, "continue", Resumed(status, False, "already_terminal"))
    if status != "error":
        nothing(world, "retry", Resumed(status, False, "already_terminal"))


@pytest.mark.parametrize("kind", ["continue", "retry"])
def test_S4_what_waits_gets_one_only_to_be_cancelled(world, kind: str):
    world.suspended()
    nothing(world, kind, Resumed("suspended", False, "already_suspended"))
    world.raw("SET", world.keys.cancel("e"), "enough")
    assert world.resume(kind) == Value(Resumed("suspended", True, ""))
    begun = world.begin(world.take_one(), nonce="n2", kind=kind).value
    assert (begun.cancel, begun.wait, begun.woken) == (True, "1", "")


def test_what_was_woken_gets_one_more(world):
    """Its carrier may be lost; the wake can not be had again."""
    world.suspended()
    world.wake()
    world.raw("DEL", world.keys.wake)
    assert world.resume() == Value(Resumed("suspended", True, ""))
    assert world.begin(world.take_one(), nonce="n2", kind="continue").value.woken == "event"


def failed(world):
    entry, begun = world.running()
    world.finish(begun, entry, status="error")


def test_S3_a_retry_of_an_error_gets_a_carrier_and_changes_no_state(world):
    failed(world)
    before = world.row()
    assert world.resume("retry") == Value(Resumed("error", True, ""))
    assert world.row() == before | {"resumed_by": b"r1"}
    assert world.raw("EXISTS", world.keys.of_execution("g1wakeups", "e")) == 0


def test_S13_the_same_retry_sent_again_costs_no_second_wake_up(world):
    """Its first answer was lost, and what it woke has failed again meanwhile."""
    failed(world)
    assert world.resume("retry") == world.resume("retry") == Value(Resumed("error", True, ""))
    entry = world.take_one()
    world.finish(world.begin(entry, nonce="n2", kind="retry").value, entry, status="error")
    assert world.resume("retry") == Value(Resumed("error", True, ""))
    assert sent(world) == []
    assert world.raw("GET", world.keys.of_execution("g1wakeups", "e")) == b"1"
    assert world.resume("retry", nonce="r2") == Value(Resumed("error", True, ""))
    assert len(sent(world)) == 1, "another retry, which somebody asked for"


@pytest.mark.parametrize(
    ("word", "below", "limit", "reason"),
    [("g1wakeups", 1, 2, "g1_wakeups_exhausted"), ("nofail", 11, 12, "deterministic_failure_exhausted")],
)
def test_S13_at_the_limit_it_names_the_key(world, word: str, below: int, limit: int, reason: str):
    failed(world)
    key = world.keys.of_execution(word, "e")
    world.raw("SET", key, limit)
    nothing(world, "retry", Resumed("error", False, reason, key))
    world.raw("SET", key, below)
    assert world.resume("retry").value.enqueued is True


def test_S3_a_retry_whose_definition_is_gone_leaves_it_as_it_is(world):
    failed(world)
    world.raw("DEL", world.keys.flow_body("a" * 64))
    nothing(world, "retry", Resumed("error", False, "definition_gone", "a" * 64))
    world.raw("HDEL", world.keys.row("e"), "flow_hash")
    assert world.resume("retry").value.enqueued is True, "an old row names none: nothing to compare (F6)"


def test_no_row_tombstoned_wrong_type(world):
    assert world.resume() == Refused("no_row")
    world.raw("SET", world.keys.row("e"), "x")
    assert world.resume() == Refused("wrong_type", "string")
    world.raw("DEL", world.keys.row("e"))
    world.start()
    world.raw("HSET", world.keys.tombstone("e"), "default", "1 why")
    assert world.resume() == Refused("tombstoned", "1 why")


def test_another_tenants_row_is_another(world):
    world.start()
    keys = world.keys.for_tenant("acme")
    assert world.run(executions.request_resume(keys, executions.ResumeRequest("e", "continue", b"x"))) == Refused(
        "no_row"
    )

"""The conformance suite of ``ExecutionStorage``, by ledger id; every test runs on Redis and in memory."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
from storage_pair import Pair

from plaita import jsontext
from plaita.errors import (
    ExecutionDeletedError,
    ExecutionLeaseError,
    ExecutionStateLoadError,
    InputError,
    StatePersistError,
    WrongKeyTypeError,
)
from plaita.storage import ExecutionState
from plaita.store import carriers, executions
from plaita.store.carriers import Take
from plaita.store.executions import Begin, Begun, Commit, Finish, Start

TTL = 600_000
CONTEXT: dict[str, Any] = {
    "$NODE": {"z": {"a": [1, 2.5, None, True]}, "a": "später", "m": 2**70},
    "$INPUT": {"n": 1, "": "empty key"},
    "$LAST_NODE": "m",
    "$BRANCH": "",
    "$GLOBAL": {"flow_id": "f"},
    "$ENV": {},
    "EXPRESS_PREFIX": "$",
    "own": {"deep": [[]]},
}
FLOW = {"flow_id": "f", "globalContext": {"k": [1]}, "nodes": [{"type": "start", "id": "s", "next": "e"}, {"type": "end", "id": "e"}]}  # fmt: skip # noqa: E501


def state(execution_id: str = "e", **changes: Any) -> ExecutionState:
    return ExecutionState(**{"execution_id": execution_id, "flow_id": "f", "context": CONTEXT} | changes)


def begun(pair: Pair, execution_id: str = "e") -> tuple[carriers.Entry, Begun]:
    """An execution that a supervisor has started and holds."""
    version = pair.flows.put_flow_definition("f", FLOW)
    assert version == "1"
    keys = pair.keys
    pair.do(executions.start(keys, Start(execution_id, "f", b'{"x":1}', b"{}")))
    (entry,) = pair.do(carriers.take(keys, Take("c", 1, TTL, "host/1"))).entries
    request = Begin(execution_id, "host/1", f"n{execution_id}", TTL, entry.stream, entry.entry_id, 5)
    return entry, pair.do(executions.begin(keys, request))


def committed(pair: Pair, held: Begun, step: int, node: str, result: bytes, next_node: str, order: int) -> None:
    timing = jsontext.dumps({"order": order, "type": "mock", "status": "completed", "started_at": 1, "ended_at": 2})
    commit = Commit(
        "e", held.token, step, TTL, held.lease_value, node, result, timing, next_node, state={"kept": b'"by code"'}
    )
    pair.do(executions.commit(pair.keys, commit))


# -- round trips ----------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded_whole_and_in_its_order(pair: Pair) -> None:
    saved = state(
        flow_name="A flow",
        flow_version="7",
        flow_hash="0" * 64,
        invoker="console",
        next_node="n",
        node_state={"k": [1]},
        node_timings={"z": {"order": 0}},
        start_time="2026-01-02T03:04:05.678Z",
    )
    assert pair.executions.save_execution_state("e", saved) is True
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert found.context == CONTEXT
    assert list(found.context) == list(CONTEXT)
    assert list(found.context["$NODE"]) == ["z", "a", "m"]
    for name in ("flow_id", "flow_name", "flow_version", "flow_hash", "invoker", "next_node", "node_state", "status"):
        assert getattr(found, name) == getattr(saved, name), name
    assert (found.start_time, found.end_time, found.error) == ("2026-01-02T03:04:05.678Z", None, None)
    assert found.node_timings == saved.node_timings
    assert found.fence == saved.fence
    assert found.last_update_time is not None


def test_an_empty_record_is_kept_as_it_is(pair: Pair) -> None:
    pair.executions.save_execution_state("e", ExecutionState(execution_id="e"))
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert (found.context, found.flow_id, found.next_node, found.output) == ({}, None, None, None)


def test_there_is_none_of_an_id_that_was_never_used(pair: Pair) -> None:
    assert pair.executions.load_execution_state("nobody") is None
    assert pair.executions.delete_execution_state("nobody") is False
    assert pair.executions.list_executions() == []


def test_a_save_is_the_whole_state(pair: Pair) -> None:
    first = state(node_state={"old": 1}, error={"message": "no"})
    pair.executions.save_execution_state("e", first)
    first.context, first.node_state, first.error = {"$NODE": {"only": 1}}, {}, None
    pair.executions.save_execution_state("e", first)
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert (found.context, found.node_state, found.error) == ({"$NODE": {"only": 1}}, {}, None)


def test_many_and_large_results(pair: Pair) -> None:
    results = {f"n{number}": number for number in range(5000)} | {"large": "x" * 1_000_000}
    pair.executions.save_execution_state("e", state(context={"$NODE": results}))
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert found.context == {"$NODE": results}
    assert list(found.context["$NODE"]) == list(results)


def test_a_row_that_a_supervisor_wrote_has_its_whole_context(pair: Pair) -> None:
    _, held = begun(pair)
    committed(pair, held, 1, "z", b'{"r":1}', "a", 0)
    committed(pair, held, 2, "a", b"2", "e", 1)
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert found.context == {
        "$INPUT": {"x": 1},
        "$NODE": {"z": {"r": 1}, "a": 2},
        "$LAST_NODE": "a",
        "$BRANCH": None,
        "$FLOW_ID": "f",
        "$EXECUTION_ID": "e",
        "$GLOBAL": {"k": [1], "flow_id": "f"},
        "$PARENT": None,
        "$ENV": {},
    }
    assert list(found.context["$NODE"]) == ["z", "a"]
    assert (found.status, found.next_node, found.flow_version, found.invoker) == ("running", "e", "1", "worker")
    assert found.node_state == {"kept": "by code"}
    assert found.fence == held.token


def test_what_a_supervisor_does_after_a_save_is_in_the_context(pair: Pair) -> None:
    pair.flows.put_flow_definition("f", FLOW)
    context = {"extra": 1, "$LAST_NODE": "s", "$NODE": {"s": None}}
    pair.executions.save_execution_state("e", state(status="pending", context=context, next_node="z"))
    entry_id = pair.do(carriers.enqueue(pair.keys, "w", [("payload", b"{}"), ("execution_id", "e")]))
    pair.do(carriers.take(pair.keys, Take("c", 1, TTL, "host/1")))
    held = pair.do(executions.begin(pair.keys, Begin("e", "host/1", "n", TTL, "w", entry_id, 5)))
    assert held.control["next_node"] == "z"
    committed(pair, held, 1, "z", b"5", "e", 0)
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert found.context == {"extra": 1, "$LAST_NODE": "z", "$NODE": {"s": None, "z": 5}}


def test_without_a_next_node_the_last_one_runs_again_and_never_the_first(pair: Pair) -> None:
    """Ledger S1: it does not start over."""
    pair.executions.save_execution_state("e", state())
    assert pair.row("e")["next_node"] == b"m"


def test_serialised_and_back(pair: Pair) -> None:
    text = pair.executions.serialize_state(state())
    assert ExecutionState(**pair.executions.deserialize_state(text)) == state()
    assert pair.executions.deserialize_state(pair.executions.serialize_state({"big": 2**70})) == {"big": 2**70}
    with pytest.raises(jsontext.JSONTextError):
        pair.executions.deserialize_state("[1]")
    with pytest.raises(jsontext.JSONTextError):
        pair.executions.deserialize_state("{")


@pytest.mark.parametrize("value", [math.nan, math.inf, {1: 2}, {"a": object()}, "\ud800", [{1, 2}], b"bytes"])
def test_F2_what_json_does_not_carry_is_named_and_nothing_is_written(pair: Pair, value: Any) -> None:
    for changes in ({"context": {"$NODE": {"n": value}}}, {"node_state": {"k": value}}, {"context": {"own": value}}):
        with pytest.raises(StatePersistError, match="cannot be saved: "):
            pair.executions.save_execution_state("e", state(**changes))
        with pytest.raises(jsontext.JSONValueError):
            pair.executions.serialize_state(state(**changes))
    assert pair.executions.load_execution_state("e") is None


@pytest.mark.parametrize("context", [{"$NODE": [1]}, {"$LAST_NODE": 3}, {"$BRANCH": ["a"]}])
def test_a_context_that_is_none_is_named(pair: Pair, context: dict[str, Any]) -> None:
    with pytest.raises(StatePersistError, match=next(iter(context)).replace("$", r"\$")):
        pair.executions.save_execution_state("e", state(context=context))


def test_ids_and_tenants_are_checked(pair: Pair) -> None:
    with pytest.raises(InputError, match="not of 'other'"):
        pair.executions.save_execution_state("other", state())
    with pytest.raises(InputError, match="tenant"):
        pair.executions.save_execution_state("e", state(tenant_id="somebody"))
    with pytest.raises(InputError):
        pair.executions.load_execution_state("a b")


# -- indexes and listing --------------------------------------------------------------------------------------


def test_listing_by_status_and_flow(pair: Pair) -> None:
    for number, status in enumerate(("pending", "running", "suspended", "completed", "error", "cancelled")):
        pair.executions.save_execution_state(
            f"e{number}", state(f"e{number}", status=status, start_time=f"2026-01-0{number + 1}T00:00:00Z")
        )
    listed = pair.executions.list_executions()
    assert [one.execution_id for one in listed] == [f"e{number}" for number in (5, 4, 3, 2, 1, 0)]
    assert all(one.context == {} for one in listed)
    assert [one.execution_id for one in pair.executions.list_executions({"status": "error"})] == ["e4"]
    assert [one.status for one in pair.executions.list_executions(limit=2, offset=1)] == ["error", "completed"]
    assert len(pair.executions.list_executions({"flow_id": "f"})) == 6
    assert pair.executions.list_executions({"flow_id": "other"}) == []
    for bad in ({"query": {"x": "1"}}, {"query": {"status": "odd"}}, {"order_by": "name"}, {"limit": -1}):
        with pytest.raises(InputError):
            pair.executions.list_executions(**bad)  # type: ignore[arg-type]


def test_a_new_status_moves_the_index(pair: Pair) -> None:
    one = state()
    for status in ("pending", "running", "suspended", "running", "completed"):
        one.status = status  # type: ignore[assignment]
        pair.executions.save_execution_state("e", one)
        assert {name for name in ("pending", "running", "suspended", "completed") if pair.index(name)} == {status}
    assert pair.index() == ["e"]
    assert pair.raw("ZSCORE", pair.keys.expiry, "e") is not None
    assert pair.raw("PTTL", pair.keys.row("e")) > 0


def test_D4_a_row_that_no_index_knows_is_indexed_when_it_is_read(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.executions.save_execution_state("e", state())
    pair.raw("DEL", pair.keys.index(), pair.keys.index("running"))
    assert pair.executions.load_execution_state("e") is not None
    assert (pair.index(), pair.index("running")) == (["e"], ["e"])
    assert "indexed again" in caplog.text


def test_each_wait_has_an_id_of_its_own(pair: Pair) -> None:
    one = state(status="suspended")
    pair.executions.save_execution_state("e", one)
    first = pair.row("e")["wait"]
    pair.executions.save_execution_state("e", one)
    assert pair.row("e")["wait"] == first
    one.status = "running"
    pair.executions.save_execution_state("e", one)
    assert pair.row("e")["wait"] == b""
    one.status = "suspended"
    pair.executions.save_execution_state("e", one)
    assert pair.row("e")["wait"] not in (b"", first)


# -- fencing --------------------------------------------------------------------------------------------------


def test_L2_who_loaded_before_another_had_it_writes_no_more(pair: Pair) -> None:
    pair.executions.save_execution_state("e", state())
    early, late = pair.executions.load_execution_state("e"), pair.executions.load_execution_state("e")
    assert early is not None
    assert late is not None
    late.context["mark"] = "late"
    pair.executions.save_execution_state("e", late)
    pair.executions.save_execution_state("e", late)  # its own saves do not stand in its way
    with pytest.raises(ExecutionLeaseError, match="another's since"):
        pair.executions.save_execution_state("e", early)
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert found.context["mark"] == "late"


def test_L2_while_a_supervisor_holds_it_nobody_else_writes(pair: Pair) -> None:
    _, held = begun(pair)
    before = pair.row("e")
    loaded = pair.executions.load_execution_state("e")
    assert loaded is not None
    for one in (loaded, state()):
        with pytest.raises(ExecutionLeaseError, match="held by"):
            pair.executions.save_execution_state("e", one)
    with pytest.raises(ExecutionLeaseError):
        pair.executions.save_execution_state("e", loaded, token="1:0000000000000000")
    assert pair.row("e") == before
    loaded.context["by"] = "its holder"
    pair.executions.save_execution_state("e", loaded, token=held.token)
    committed(pair, held, 1, "z", b"1", "e", 0)  # its token is still good
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert found.context["by"] == "its holder"


def test_L2_a_save_without_a_lease_ends_the_right_of_who_lost_it(pair: Pair) -> None:
    _, held = begun(pair)
    pair.raw("DEL", pair.keys.lease("e"))  # it ran out
    pair.executions.save_execution_state("e", state())
    with pytest.raises(Exception, match="fence"):
        committed(pair, held, 1, "z", b"1", "e", 0)


def test_L2_row_and_fence_out_of_a_backup_give_an_old_hand_no_right(pair: Pair) -> None:
    pair.executions.save_execution_state("e", state())
    old = pair.executions.load_execution_state("e")
    assert old is not None
    row, fence = pair.raw("DUMP", pair.keys.row("e")), pair.raw("DUMP", pair.keys.fence("e"))
    newer = pair.executions.load_execution_state("e")
    assert newer is not None
    pair.executions.save_execution_state("e", newer)
    pair.raw("RESTORE", pair.keys.row("e"), 0, row, "REPLACE")
    pair.raw("RESTORE", pair.keys.fence("e"), 0, fence, "REPLACE")
    with pytest.raises(ExecutionLeaseError):
        pair.executions.save_execution_state("e", old)


def test_L2_of_many_who_loaded_the_same_one_saves(pair: Pair) -> None:
    pair.executions.save_execution_state("e", state())
    loaded = [pair.executions.load_execution_state("e") for _ in range(8)]
    outcomes: list[str] = []

    def save(one: ExecutionState | None) -> None:
        assert one is not None
        try:
            pair.executions.save_execution_state("e", one)
            outcomes.append("saved")
        except ExecutionLeaseError:
            outcomes.append("refused")

    threads = [threading.Thread(target=save, args=(one,)) for one in loaded]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["saved"]


def test_what_has_ended_stays_so(pair: Pair) -> None:
    one = state(status="completed", end_time="2026-02-03T00:00:00Z")
    pair.executions.save_execution_state("e", one)
    one.flow_name = "told later"
    pair.executions.save_execution_state("e", one)
    one.status = "running"
    with pytest.raises(StatePersistError, match="has ended as completed"):
        pair.executions.save_execution_state("e", one)
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert (found.status, found.end_time, found.flow_name) == ("completed", "2026-02-03T00:00:00.000Z", "told later")
    assert found.output == CONTEXT["$NODE"]["m"]


def test_after_its_end_a_supervisors_output_is_there(pair: Pair) -> None:
    entry, held = begun(pair)
    end = Finish("e", held.token, 1, "completed", entry.stream, entry.entry_id, TTL, "z", b"1", b"{}", b'{"out":1}')
    pair.do(executions.finish(pair.keys, end))
    found = pair.executions.load_execution_state("e")
    assert found is not None
    assert (found.status, found.output, found.context["$NODE"]) == ("completed", {"out": 1}, {"z": 1})
    assert found.end_time is not None


# -- deleting ---------------------------------------------------------------------------------------------------


def test_D1_a_delete_is_a_revocation(pair: Pair) -> None:
    _, held = begun(pair)
    loaded = pair.executions.load_execution_state("e")
    assert loaded is not None
    assert pair.executions.delete_execution_state("e", reason="wrong") is True
    assert pair.executions.load_execution_state("e") is None
    assert (pair.index(), pair.index("running")) == ([], [])
    for token in (None, held.token):
        for one in (loaded, state()):
            with pytest.raises(ExecutionDeletedError):
                pair.executions.save_execution_state("e", one, token=token)
    with pytest.raises(Exception, match="no_row"):
        committed(pair, held, 1, "z", b"1", "e", 0)
    assert pair.raw("EXISTS", pair.keys.row("e")) == 0
    assert pair.raw("EXISTS", pair.keys.fencegen("e"), pair.keys.tombstone("e")) == 2


@pytest.mark.parametrize(
    ("name", "value", "days"),
    [("PLAITA_TASK_MAX_AGE_SECONDS", str(60 * 86_400), 60), ("PLAITA_EXECUTION_STATE_TTL_DAYS", "1", 30)],
)
def test_D2_a_tombstone_outlives_every_carrier_that_a_supervisor_would_still_run(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, name: str, value: str, days: int
) -> None:
    monkeypatch.setenv(name, value)
    pair.executions.save_execution_state("e", state())
    assert pair.executions.delete_execution_state("e") is True
    left = pair.raw("PTTL", pair.keys.tombstone("e"))
    assert 0 <= days * 86_400_000 - left < 3_600_000


def test_D1_an_old_generation_does_not_delete_a_newer_ones_row(pair: Pair) -> None:
    _, held = begun(pair)
    pair.raw("DEL", pair.keys.lease("e"))
    pair.executions.save_execution_state("e", state())
    with pytest.raises(ExecutionLeaseError):
        pair.executions.delete_execution_state("e", token=held.token)
    newer = pair.executions.load_execution_state("e")
    assert newer is not None
    assert pair.executions.delete_execution_state("e", token=newer.fence) is True


def test_D2_a_row_out_of_a_backup_stays_deleted(pair: Pair) -> None:
    pair.executions.save_execution_state("e", state())
    row = pair.raw("DUMP", pair.keys.row("e"))
    pair.executions.delete_execution_state("e")
    pair.raw("RESTORE", pair.keys.row("e"), 0, row)
    assert pair.executions.load_execution_state("e") is None
    with pytest.raises(ExecutionDeletedError):
        pair.executions.save_execution_state("e", state())


def test_a_second_delete_says_that_there_was_nothing(pair: Pair) -> None:
    pair.executions.save_execution_state("e", state())
    assert pair.executions.delete_execution_state("e") is True
    assert pair.executions.delete_execution_state("e") is False


# -- what is not there, and what is another thing ---------------------------------------------------------------


@pytest.mark.parametrize("words", [("SET", "x"), ("RPUSH", "x"), ("SADD", "x")])
def test_another_type_at_the_key_is_named_and_left_alone(pair: Pair, words: tuple[str, str]) -> None:
    pair.raw(words[0], pair.keys.row("e"), words[1])
    before = pair.raw("DUMP", pair.keys.row("e"))
    with pytest.raises(WrongKeyTypeError, match="something else"):
        pair.executions.load_execution_state("e")
    with pytest.raises(WrongKeyTypeError, match="left as it is"):
        pair.executions.save_execution_state("e", state())
    assert pair.raw("DUMP", pair.keys.row("e")) == before


def test_a_row_with_what_is_no_json_is_a_load_error(pair: Pair) -> None:
    pair.executions.save_execution_state("e", state())
    pair.raw("HSET", pair.keys.row("e"), "r:z", "{broken")
    with pytest.raises(ExecutionStateLoadError, match="cannot be loaded"):
        pair.executions.load_execution_state("e")
    pair.raw("HSET", pair.keys.row("e"), "r:z", "1", "status", "odd")
    with pytest.raises(ExecutionStateLoadError, match="cannot be loaded"):
        pair.executions.load_execution_state("e")


def test_D2_a_delete_under_a_time_that_is_none_says_so(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PLAITA_EXECUTION_TOMBSTONE_TTL_SECONDS", "for ever")
    pair.executions.delete_execution_state("e")
    assert "PLAITA_EXECUTION_TOMBSTONE_TTL_SECONDS: 'for ever'" in caplog.text

"""Ledger D5, Q7, D3: what a replay brings back of each kind of letter, as a table."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plaita import jsontext
from plaita.policy.carrier import Carrier, read_carrier
from plaita.policy.copies import inherited
from plaita.policy.dead_letter import envelope
from plaita.policy.replay import EXPLANATIONS, Outcome, Plan, Unfit, plan

DLQ = "q:dlq"
STAMPS = {"config_family": "cf1-a", "budget_generation": "bg1-b"}
NOW = 1_700_000_000_000
DAY = 86_400_000
DLQ_ID = f"{NOW - DAY}-3"
START = {"type": "start", "flow_id": "f", "execution_id": "e", "tenant_id": "t", "params": {"n": 912345678901234567}}
RESUME = {"type": "resume", "flow_id": "f", "execution_id": "e", "resume_type": "event", "tenant_id": "t", "wait": "4"}


def letter(payload: Any = None, **changes: Any) -> dict[bytes, bytes]:
    said = {"reason": "r", "payload": START if payload is None else payload, "dead_lettered_at": (NOW - DAY) / 1000}
    said |= changes
    return {b"payload": jsontext.dumps({name: value for name, value in said.items() if value is not ...})}


def planned(given: dict[bytes, bytes], tenant: str | None = None, max_age_ms: int = 30 * DAY) -> Plan | Unfit:
    return plan(given, dlq_key=DLQ, dlq_id=DLQ_ID, tenant=tenant, now_ms=NOW, max_age_ms=max_age_ms)


def entry(given: dict[bytes, bytes], tenant: str | None = None) -> dict[str, Any]:
    found = planned(given, tenant)
    assert isinstance(found, Plan), found
    return dict(found.fields)


def payload_of(fields: dict[str, Any]) -> dict[str, Any]:
    return jsontext.loads(fields["payload"])


@pytest.mark.parametrize(
    ("given", "tenant", "wanted"),
    [
        (letter(schema_version=2), None, Outcome.SCHEMA_TOO_NEW),
        ({**letter(), b"schema_version": b"2"}, None, Outcome.SCHEMA_TOO_NEW),
        (letter({**START, "type": "other"}), None, Outcome.MALFORMED),
        (letter({**START, "flow_id": None}), None, Outcome.MALFORMED),
        (letter({**RESUME, "resume_type": "jump"}), None, Outcome.MALFORMED),
        (letter([1]), None, Outcome.MALFORMED),
        (letter({"base64": "/w=="}), None, Outcome.MALFORMED),
        (letter(raw_fields=[["cGF5bG9hZA==", "/w=="]]), None, Outcome.MALFORMED),
        (letter(raw_fields=[["cGF5bG9hZA=="]]), None, Outcome.MALFORMED),
        (letter(raw_fields=[["*", "*"]]), None, Outcome.MALFORMED),
        (letter(...), None, Outcome.MALFORMED),
        ({b"payload": b"\xff"}, "t", Outcome.MALFORMED),
        ({b"reason": b"delayed_record_unreadable", b"raw_body": b"\xff"}, "t", Outcome.MALFORMED),
        ({}, "t", Outcome.MALFORMED),
        (letter({**START, "tenant_id": None}), None, Outcome.TENANT_REQUIRED),
        (letter({**START, "tenant_id": ""}), None, Outcome.TENANT_REQUIRED),
        (letter(), "other", Outcome.TENANT_MISMATCH),
        (letter({**START, "tenant_id": None}, tenant_id="t"), "other", Outcome.TENANT_MISMATCH),
        (letter(first_enqueued_at=NOW - 31 * DAY), None, Outcome.TOO_OLD),
        (letter({**START, "timestamp": (NOW - 31 * DAY) / 1000}), None, Outcome.TOO_OLD),
    ],
)
def test_D5_what_is_not_replayed(given: dict[bytes, bytes], tenant: str | None, wanted: Outcome):
    found = planned(given, tenant)
    assert isinstance(found, Unfit)
    assert found.outcome is wanted


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["type", "flow_id", "execution_id", "tenant_id", "timestamp", "params", "resume_type", "dedup_key", "wait"]
SAID = ["schema_version", "dead_lettered_at", "first_enqueued_at", "execution_id", "flow_id", "tenant_id"]
SAID += ["raw_fields", "replay_count", "config_family"]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    payload=st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from(["start", "resume", "event"])) | JSON,
    said=st.dictionaries(st.sampled_from(SAID), JSON),
)
def test_D5_whatever_stands_in_a_letter_it_is_a_plan_or_a_word(payload: Any, said: dict[str, Any]):
    found = planned(letter({**START, **payload} if isinstance(payload, dict) else payload, **said))
    assert isinstance(found, Plan | Unfit)


@pytest.mark.parametrize("name", ["a\nb", "x" * 201, "\x00", "", " a ", "a b", 7, ["a"], {"a": 1}])
@pytest.mark.parametrize("field", ["execution_id", "tenant_id", "flow_id"])
def test_ids_that_are_none_are_malformed_or_asked_for(field: str, name: Any):
    found = planned(letter({**START, field: name}))
    if isinstance(found, Plan):
        assert (field, name) == ("execution_id", ""), "which is as none"
    else:
        assert found.outcome in (Outcome.MALFORMED, Outcome.TENANT_REQUIRED)


def test_D5_every_outcome_is_explained():
    assert set(EXPLANATIONS) == set(Outcome)


@pytest.mark.parametrize(
    ("payload", "kind", "stream", "foreign", "wait"),
    [
        (START, "start", "q", True, ""),
        ({**START, "input_in_row": True}, "start", "q", False, ""),
        (RESUME, "event", "w", False, "4"),
        ({**RESUME, "resume_type": "retry", "wait": None}, "retry", "w", False, ""),
        ({**RESUME, "resume_type": "cancel"}, "cancel", "w", False, "4"),
    ],
)
def test_D5_what_kind_of_carrier_it_is(payload: dict[str, Any], kind: str, stream: str, foreign: bool, wait: str):
    found = planned(letter(payload))
    assert isinstance(found, Plan)
    assert (found.kind, found.stream, found.foreign, found.wait) == (kind, stream, foreign, wait)
    assert (found.execution_id, found.tenant_id, found.flow_id) == ("e", "t", "f")


@pytest.mark.parametrize("tenant", [None, "t"])
def test_D5_the_carrier_comes_back_as_it_was(tenant: str | None):
    fields = entry(letter(), tenant)
    assert payload_of(fields) == START
    assert fields | {"payload": b""} == {
        "payload": b"",
        "execution_id": "e",
        "tenant_id": "t",
        "flow_id": "f",
        "schema_version": "1",
        "first_enqueued_at": str(NOW - DAY),
        "replay_of": DLQ_ID,
        "replay_count": "1",
    }


def test_D5_what_was_kept_byte_for_byte_comes_back_so():
    raw = b'{"type":"start","flow_id":"f",\n "execution_id":"e","tenant_id":"t","params":{"x":1.50}}'
    pairs = [(b"payload", raw), (b"schema_version", b"1")]
    given = letter(raw_fields=[[base64.b64encode(a).decode(), base64.b64encode(b).decode()] for a, b in pairs])
    assert entry(given)["payload"] == raw


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"payload": {**START, "timestamp": (NOW - 5 * DAY) / 1000}}, NOW - 5 * DAY),
        (
            {"payload": {**START, "timestamp": (NOW - 5 * DAY) / 1000}, "first_enqueued_at": NOW - 9 * DAY},
            NOW - 9 * DAY,
        ),
        ({"payload": {**START, "timestamp": "2999-01-01T00:00:00Z"}}, NOW - DAY),
        ({"payload": {**START, "timestamp": "soon"}}, NOW - DAY),
        ({"dead_lettered_at": (NOW - 2 * DAY) / 1000}, NOW - 2 * DAY),
        ({"dead_lettered_at": ...}, NOW - DAY),
        ({"dead_lettered_at": "when?"}, NOW - DAY),
        ({"dead_lettered_at": (NOW + DAY) / 1000}, NOW - DAY),
    ],
)
def test_D3_a_replay_makes_nothing_younger(said: dict[str, Any], wanted: int):
    given = letter(**said)
    assert entry(given)["first_enqueued_at"] == str(wanted)
    found = planned(given)
    assert isinstance(found, Plan)
    assert dict(found.retry_fields)["first_enqueued_at"] == str(wanted)
    for fields in (found.fields, found.retry_fields):
        carrier = read_carrier(_encoded(dict(fields)), queue="q", entry_id=f"{NOW}-0")
        assert isinstance(carrier, Carrier)
        assert carrier.first_enqueued_ms == wanted


def _encoded(fields: dict[str, Any]) -> dict[bytes, bytes]:
    return {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in fields.items()}


def test_D3_without_a_limit_nothing_is_too_old():
    assert isinstance(planned(letter(first_enqueued_at=1_000_000_000_000), max_age_ms=0), Plan)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({}, {}),
        (
            {"config_family": "cf1-a", "budget_generation": "bg1-b"},
            {"config_family": "cf1-a", "budget_generation": "bg1-b"},
        ),
        ({"payload": {**START, "config_family": "cf1-p"}}, {"config_family": "cf1-p"}),
        ({"payload": {**START, "config_family": "cf1-p"}, "config_family": "cf1-a"}, {"config_family": "cf1-a"}),
        ({"config_family": 7}, {}),
        ({"schema_version": "junk"}, {}),
    ],
)
def test_Q7_generations_and_schema_are_inherited_never_stamped(said: dict[str, Any], wanted: dict[str, str]):
    for fields in (entry(letter(**said)), dict(planned(letter(**said)).retry_fields)):  # type: ignore[union-attr]
        kept = {name: fields[name] for name in ("config_family", "budget_generation") if name in fields}
        assert (kept, fields["schema_version"]) == (wanted, "1")


def test_D5_a_start_without_an_id_meets_the_same_execution_each_time():
    given = letter({name: value for name, value in START.items() if name != "execution_id"})
    fields = entry(given)
    made = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{DLQ}:{DLQ_ID}"))
    assert fields == entry(given)
    assert (fields["execution_id"], payload_of(fields)["execution_id"]) == (made, made)
    assert payload_of(fields)["dedup_key"] == f"dlq:{made}"
    assert payload_of(fields)["params"] == START["params"]


def test_D5_the_id_it_ran_under_and_its_own_dedup_key_stand_above():
    without = {name: value for name, value in START.items() if name != "execution_id"} | {"dedup_key": "mine"}
    fields = entry(letter(without, execution_id="ran"))
    assert (fields["execution_id"], payload_of(fields)["dedup_key"]) == ("ran", "mine")
    assert "dedup_key" not in payload_of(entry(letter()))


def test_D5_a_given_tenant_is_written_into_it():
    fields = entry(letter({**START, "tenant_id": None}), "t")
    assert (fields["tenant_id"], payload_of(fields)["tenant_id"]) == ("t", "t")


def test_S6_a_replayed_wake_is_for_the_wait_it_was_made_for():
    payload = jsontext.dumps({**RESUME, "wait": None})
    fields = {b"payload": payload, b"wait": b"7"}
    made = envelope(
        reason="r", cause="c", source_stream="q", source_id=f"{NOW - DAY}-0", fields=fields, schema_version=1,
        dead_lettered_at_ms=NOW - DAY, attempts=1,
    )  # fmt: skip
    found = planned({name.encode(): value for name, value in made})
    assert isinstance(found, Plan)
    assert (found.kind, found.wait) == ("event", "7")
    assert payload_of(dict(found.fields))["wait"] == "7"


def test_D5_in_place_of_what_has_ended_in_error_a_retry():
    found = planned(letter())
    assert isinstance(found, Plan)
    payload = payload_of(dict(found.retry_fields))
    assert payload["type"] == "resume"
    assert (payload["resume_type"], payload["execution_id"], payload["tenant_id"]) == ("retry", "e", "t")


def test_D5_replays_are_counted_through_copies_and_letters():
    first = _encoded(entry(letter()))
    copy = inherited(first, f"{NOW}-0")
    assert (copy["replay_of"], copy["replay_count"]) == (DLQ_ID, "1")
    again = dict(
        envelope(
            reason="r",
            cause="c",
            source_stream="q",
            source_id=f"{NOW}-0",
            fields=first,
            schema_version=1,
            dead_lettered_at_ms=NOW,
            attempts=1,
        )
    )
    fields = entry({name.encode(): value for name, value in again.items()})
    assert (fields["replay_count"], fields["first_enqueued_at"]) == ("2", str(NOW - DAY))

"""Carriers at the edge: what is read, what is malformed, what is too new (Q6, Q9, S1)."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaita import jsontext
from plaita.policy import dead_letter
from plaita.policy.carrier import (
    Carrier,
    Malformed,
    ResumeType,
    TooNew,
    read_carrier,
    resume_payload,
    start_payload,
)


def _read(payload: Any, **fields: str) -> Carrier | Malformed | TooNew:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    entry = {b"payload": raw, **{name.encode(): value.encode() for name, value in fields.items()}}
    return read_carrier(entry, queue="q", entry_id="1-0")


def test_our_own_start_says_that_the_row_holds_the_input() -> None:
    payload = start_payload(
        execution_id="e1", flow_id="f", version=None, tenant_id="default", timestamp="2026-11-30T00:00:00Z"
    )
    found = _read(payload)
    assert isinstance(found, Carrier)
    assert (found.execution_id, found.flow_id, found.resume_type, found.params) == ("e1", "f", None, None)


def test_a_foreign_start_carries_its_params_exactly() -> None:
    found = _read(b'{"type":"start","flow_id":"f","execution_id":"e","params":{"n":1208925819614629174706176}}')
    assert isinstance(found, Carrier)
    assert found.params == b'{"n":1208925819614629174706176}'


def test_S1_a_start_without_an_id_gets_the_same_one_each_time() -> None:
    found = _read({"type": "start", "flow_id": "f"})
    assert isinstance(found, Carrier)
    assert found.execution_id == str(uuid.uuid5(uuid.NAMESPACE_OID, "q:1-0"))
    assert found == _read({"type": "start", "flow_id": "f"})


@pytest.mark.parametrize("kind", get_args(ResumeType))
def test_resume(kind: str) -> None:
    found = _read(
        resume_payload(execution_id="e", flow_id="f", resume_type=kind, tenant_id="t", timestamp="x", data={"a": 1})
    )
    assert isinstance(found, Carrier)
    assert (found.resume_type, found.tenant_id, found.params) == (kind, "t", None)


def test_S6_a_wake_says_in_its_entry_which_wait_it_is_for() -> None:
    """As the scripts write it, which read no payload."""
    made = {"execution_id": "e", "flow_id": "f", "resume_type": "event", "tenant_id": "t", "timestamp": ""}
    for payload, fields, wanted in (
        (resume_payload(**made), {"wait": "3"}, "3"),
        (resume_payload(**made, wait="3"), {}, "3"),
        (resume_payload(**made), {}, None),
    ):
        found = _read(payload, **fields)
        assert isinstance(found, Carrier)
        assert found.wait == wanted


@pytest.mark.parametrize(
    ("payload", "word"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[]", "payload"),
        (b"null", "payload"),
        (b'"text"', "payload"),
        (b"\xff\xfe", "JSON"),
        ({}, "type"),
        ({"type": "other"}, "type"),
        ({"type": "start"}, "flow_id"),
        ({"type": "start", "flow_id": 7}, "flow_id"),
        ({"type": "start", "flow_id": "a b"}, "flow_id"),
        ({"type": "start", "flow_id": "f", "execution_id": "a\nb"}, "execution_id"),
        ({"type": "start", "flow_id": "f", "tenant_id": "\x00"}, "tenant_id"),
        ({"type": "resume", "resume_type": "continue"}, "execution_id"),
        ({"type": "resume", "execution_id": "e", "resume_type": "again"}, "resume_type"),
        (b'{"type":"start","flow_id":"f","params":NaN}', "JSON"),
        (b'{"type":"start","flow_id":"f","params":' + b"9" * 5000 + b"}", "digits"),
        (b"[" * 100_000, "JSON"),
        (b'{"type":"start","flow_id":"f","params":' + b"[" * 300 + b"]" * 300 + b"}", "deeper"),
        (
            b'{"type":"resume","resume_type":"event","execution_id":"e","data":' + b"[" * 245 + b"]" * 245 + b"}",
            "deeper",
        ),
    ],
)
def test_Q9_malformed_names_what_is_wrong(payload: Any, word: str) -> None:
    found = _read(payload)
    assert isinstance(found, Malformed)
    assert word in found.reason


def test_Q9_an_entry_without_a_payload() -> None:
    assert isinstance(read_carrier({b"other": b"1"}, queue="q", entry_id="1-0"), Malformed)


@given(st.dictionaries(st.binary(max_size=12), st.binary(max_size=200), max_size=5))
def test_no_entry_raises(fields: dict[bytes, bytes]) -> None:
    assert isinstance(read_carrier(fields, queue="q", entry_id="1-0"), Carrier | Malformed | TooNew)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "flow_id", "execution_id", "resume_type", "params", "x"]), inner, max_size=6
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_raises(value: Any) -> None:
    assert isinstance(_read(json.dumps(value).encode()), Carrier | Malformed)


@pytest.mark.parametrize(("text", "too_new"), [("1", False), ("2", True), ("99", True), ("x", False), ("-3", False)])
def test_Q6_a_newer_schema_is_not_run(text: str, too_new: bool) -> None:
    found = _read({"type": "start", "flow_id": "f"}, schema_version=text)
    assert isinstance(found, TooNew) == too_new


def test_Q5_an_envelope_is_read_as_it_was_written() -> None:
    fields = dead_letter.envelope(
        reason="max_deliveries=5",
        cause="SIGKILL",
        source_stream="q",
        source_id="1-0",
        fields={b"payload": b'{"n": 912345678901234567890}'},
        schema_version=1,
        dead_lettered_at_ms=1_000,
        attempts=5,
        execution_id="e",
        raw_fields=[(b"payload", b"\xff"), (b"payload", b"2")],
    )
    found = dead_letter.read({name.encode(): value for name, value in fields})
    assert found["payload"] == {"n": 912345678901234567890}
    assert (found["reason"], found["cause"], found["delivery_count"]) == ("max_deliveries=5", "SIGKILL", 5)
    assert len(found["raw_fields"]) == 2


@pytest.mark.parametrize("depth", [1, 240, 250, 256, 300, 1000, 2000])
def test_Q5_a_payload_is_in_the_envelope_however_deep_it_is(depth: int) -> None:
    payload = b"[" * depth + b"]" * depth
    fields = dead_letter.envelope(
        reason="r",
        cause="malformed",
        source_stream="q",
        source_id="1-0",
        fields={b"payload": payload},
        schema_version=1,
        dead_lettered_at_ms=1_000,
        attempts=5,
    )
    found = dead_letter.read({name.encode(): value for name, value in fields})["payload"]
    assert (base64.b64decode(found["base64"]) if depth > 248 else jsontext.dumps(found)) == payload


def test_Q5_an_unreadable_envelope_says_so() -> None:
    assert "unreadable" in dead_letter.read({b"payload": b"\xff"})["reason"]
    assert dead_letter.read({b"payload": jsontext.dumps([1])})["payload"] == [1]


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("order 17", "order 17"),
        ("", None),
        (None, None),
        ("e\u0301", "\u00e9"),
        ("a:b|c@d", "a:b|c@d"),
        ("x" * 200, "x" * 200),
    ],
)
def test_KNOWN_TROUBLE_23_a_producers_dedup_key_is_one_key_however_it_is_spelled(
    said: str | None, key: str | None
) -> None:
    carrier = _read({"type": "start", "flow_id": "f", "dedup_key": said})
    assert isinstance(carrier, Carrier)
    assert carrier.dedup_key == key


@pytest.mark.parametrize("said", ["a\nb", "a\x00b", "x" * 201, "\u202ea", "a\u2028b"])
def test_KNOWN_TROUBLE_23_a_dedup_key_that_would_break_a_line_is_named(said: str) -> None:
    refused = _read({"type": "start", "flow_id": "f", "dedup_key": said})
    assert isinstance(refused, Malformed)
    assert "dedup_key" in refused.reason

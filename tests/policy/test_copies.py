"""Ledger Q7, DECISIONS 20: what a copy of a carrier takes over."""

from __future__ import annotations

import pytest

from plaita import jsontext
from plaita.policy.carrier import Carrier, read_carrier
from plaita.policy.copies import broadcast, continue_copy, inherited, same_body

ENTRY_MS = 1_700_000_000_000
ENTRY = f"{ENTRY_MS}-0"
EARLIER = ENTRY_MS - 86_400_000


def fields(payload: object = None, **named: str) -> dict[bytes, bytes]:
    found = {name.encode(): value.encode() for name, value in named.items()}
    if payload is not None:
        found[b"payload"] = payload if isinstance(payload, bytes) else jsontext.dumps(payload)
    return found


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (fields(), {"schema_version": "1", "first_enqueued_at": str(ENTRY_MS)}),
        (fields(schema_version="3"), {"schema_version": "3", "first_enqueued_at": str(ENTRY_MS)}),
        (fields(schema_version="junk"), {"schema_version": "1", "first_enqueued_at": str(ENTRY_MS)}),
        (
            fields(config_family="cf1-a", budget_generation="bg1-b"),
            {"config_family": "cf1-a", "budget_generation": "bg1-b", "schema_version": "1"},
        ),
        (fields({"config_family": "cf1-p", "budget_generation": "bg1-p"}), {"config_family": "cf1-p"}),
        (fields({"config_family": "cf1-p"}, config_family="cf1-entry"), {"config_family": "cf1-entry"}),
        (fields({"config_family": 7}), {"schema_version": "1"}),
        (fields(b"{not json", config_family="cf1-a"), {"config_family": "cf1-a"}),
        (fields(first_enqueued_at=str(EARLIER)), {"first_enqueued_at": str(EARLIER)}),
        (fields(first_enqueued_at=str(ENTRY_MS + 5000)), {"first_enqueued_at": str(ENTRY_MS)}),
        (fields({"timestamp": "2023-11-13T22:13:20Z"}), {"first_enqueued_at": str(EARLIER)}),
        (fields({"timestamp": EARLIER / 1000}), {"first_enqueued_at": str(EARLIER)}),
        (fields({"timestamp": EARLIER}), {"first_enqueued_at": str(EARLIER)}),
        (fields({"timestamp": "2999-01-01T00:00:00Z"}), {"first_enqueued_at": str(ENTRY_MS)}),
        (fields({"timestamp": "yesterday"}), {"first_enqueued_at": str(ENTRY_MS)}),
        (
            fields({"timestamp": "2023-11-14T00:00:00Z"}, first_enqueued_at=str(EARLIER)),
            {"first_enqueued_at": str(EARLIER)},
        ),
    ],
)
def test_Q7_what_is_inherited(source: dict[bytes, bytes], wanted: dict[str, str]):
    found = inherited(source, ENTRY)
    assert {name: found.get(name) for name in wanted} == wanted
    assert set(found) <= {"schema_version", "config_family", "budget_generation", "first_enqueued_at"}


@pytest.mark.parametrize("source", [fields(), fields({"type": "start", "flow_id": "f"})])
def test_Q7_nothing_is_stamped_that_the_source_did_not_say(source: dict[bytes, bytes]):
    assert set(inherited(source, ENTRY)) == {"schema_version", "first_enqueued_at"}


def test_Q7_a_copy_of_a_copy_is_as_old_as_the_first():
    source = fields(schema_version="1", config_family="cf1-a", first_enqueued_at=str(EARLIER))
    entry = source
    for later in range(1, 4):
        made = continue_copy(entry, f"{ENTRY_MS + later}-0", execution_id="e", flow_id="f", tenant_id="t")
        entry = {name.encode(): value.encode() if isinstance(value, str) else value for name, value in made}
        assert len(entry) == len(made), "no field stands twice"
        carrier = read_carrier(entry, queue="q", entry_id=f"{ENTRY_MS + later}-0")
        assert isinstance(carrier, Carrier)
        assert (carrier.execution_id, carrier.tenant_id, carrier.flow_id) == ("e", "t", "f")
        assert carrier.resume_type == "continue"
        assert carrier.first_enqueued_ms == EARLIER
        assert carrier.stamps.config_family == "cf1-a"


def test_Q7_the_payload_says_the_first_time_too():
    """Workers that know no field first_enqueued_at judge by the payload's timestamp."""
    made = dict(
        continue_copy(fields(first_enqueued_at=str(EARLIER)), ENTRY, execution_id="e", flow_id="f", tenant_id="")
    )
    assert jsontext.loads(made["payload"])["timestamp"] == "2023-11-13T22:13:20.000Z"


def test_Q7_G4_a_handover_has_the_very_body_and_all_fields_of_its_source():
    body = b'{"type":"start", "flow_id":"f","target_instance_id":"two","params":{"n":912345678901234567890}}'
    source = fields(body, schema_version="1", config_family="cf1-a", execution_id="e", x="y")
    source[b"\xff"] = b"no name"
    copy = dict(same_body(source, ENTRY, {"handovers": "1", "handover_since": "5"}))
    assert copy == {
        "payload": body,
        "execution_id": b"e",
        "x": b"y",
        "schema_version": "1",
        "config_family": "cf1-a",
        "first_enqueued_at": str(ENTRY_MS),
        "handovers": "1",
        "handover_since": "5",
    }


def test_Q7_G4_a_broadcast_lacks_the_target_and_the_handovers_only():
    body = {"type": "start", "flow_id": "f", "target_instance_id": "two", "params": {"n": 912345678901234567890}}
    source = fields(body, schema_version="1", execution_id="e", handovers="7", handover_since="5")
    source[b"first_enqueued_at"] = str(EARLIER).encode()
    copy = dict(broadcast(source, ENTRY, {}))
    assert jsontext.loads(copy.pop("payload")) == {
        "type": "start",
        "flow_id": "f",
        "params": {"n": 912345678901234567890},
    }
    assert copy == {"execution_id": b"e", "schema_version": "1", "first_enqueued_at": str(EARLIER)}


@pytest.mark.parametrize(
    "make", [lambda source: same_body(source, ENTRY, {}), lambda source: broadcast(source, ENTRY, {})]
)
def test_Q7_G4_both_are_carriers_of_the_same_age(make):
    source = fields({"type": "resume", "resume_type": "continue", "execution_id": "e", "target_instance_id": "two"})
    source[b"first_enqueued_at"] = str(EARLIER).encode()
    copy = {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in make(source)}
    carrier = read_carrier(copy, queue="q", entry_id=f"{ENTRY_MS + 9}-0")
    assert isinstance(carrier, Carrier)
    assert (carrier.execution_id, carrier.first_enqueued_ms) == ("e", EARLIER)

"""start: row, index and carrier in one call (DECISIONS 15, ledger S2, D2, F8)."""

from __future__ import annotations

import pytest

from plaita.store import executions, flows
from plaita.store.call import Refused
from plaita.store.executions import Start
from plaita.store.keys import Keys


def test_start_makes_row_index_and_carrier(world):
    started = world.start("e", fields={"config_family": "cf1-x"})
    assert (started.status, started.version, started.deduplicated) == ("pending", "1", False)
    row = world.row()
    assert (row["status"], row["flow_id"], row["input"], row["tenant_id"]) == (b"pending", b"f", b'{"x":1}', b"default")
    assert world.raw("ZRANGE", world.keys.index("pending"), 0, -1) == [b"e"]
    entry = world.take_one()
    assert entry.entry_id == started.message_id
    assert entry.fields == {
        b"payload": b'{"type":"start"}',
        b"schema_version": b"1",
        b"execution_id": b"e",
        b"tenant_id": b"default",
        b"flow_id": b"f",
        b"config_family": b"cf1-x",
    }


def test_the_same_request_again_starts_nothing(world):
    request = Start("e", "f", input=b"1", payload=b"{}")
    first = world.do(executions.start(world.keys, request))
    before = world.everything()
    assert world.do(executions.start(world.keys, request)) == first
    assert world.everything() == before


def test_F8_an_id_that_is_taken(world):
    world.put_flow("other")
    world.start("e")
    before = world.everything()
    for flow in ("f", "other"):
        answer = world.run(executions.start(world.keys, Start("e", flow, input=b'{"x":1}', payload=b"{}")))
        assert answer == Refused("id_taken", "f")
    assert world.everything() == before


@pytest.mark.parametrize(
    ("flow", "version", "refused"),
    [("none", "latest", Refused("no_flow")), ("f", "9", Refused("no_version", "1"))],
)
def test_what_cannot_be_resolved_leaves_nothing(world, flow: str, version: str, refused: Refused):
    before = world.everything()
    answer = world.run(executions.start(world.keys, Start("e", flow, input=b"1", payload=b"{}", version=version)))
    assert answer == refused
    assert world.everything() == before


def test_a_version_stays_pinned_when_a_new_one_comes(world):
    world.start("e")
    world.do(flows.put(world.keys, "f", None, "b" * 64, b"{2}"))
    assert world.start("later").version == "2"
    entry = world.take(1).entries[0]
    assert world.begin(entry).value.control["version"] == "1"
    assert world.row()["flow_hash"] == b"a" * 64


def test_S2_a_dedup_key_starts_once(world):
    first = world.start("e", dedup_key="order:1")
    again = world.start("other", dedup_key="order:1")
    assert (again.execution_id, again.deduplicated, again.status) == ("e", True, "pending")
    assert again.flow_hash == first.flow_hash
    assert world.row("other") == {}
    assert len(world.take(10).entries) == 1
    assert 0 < world.raw("PTTL", world.keys.start_dedup("order:1")) <= 7 * 86_400_000


def test_S2_a_dedup_key_is_a_tenants_own(world):
    acme = Keys(tenant="acme")
    world.do(flows.put(acme, "f", None, "a" * 64, b"{}"))
    world.start("e", dedup_key="k")
    assert (
        world.do(executions.start(acme, Start("e", "f", input=b"1", payload=b"{}", dedup_key="k"))).deduplicated
        is False
    )


def test_S2_a_claim_without_a_row_is_claimed_again(world):
    world.raw("SET", world.keys.start_dedup("k"), "gone")
    assert world.start("e", dedup_key="k").deduplicated is False
    assert world.raw("GET", world.keys.start_dedup("k")) == b"e"


def test_S2_a_dedup_hit_of_an_ended_execution_says_so(world):
    world.start("e", dedup_key="k")
    entry = world.take_one()
    world.finish(world.begin(entry).value, entry)
    assert world.start("other", dedup_key="k").status == "completed"


def test_D2_a_tombstone_forbids_the_id_to_its_tenant_only(world):
    world.start("e")
    world.do(executions.delete(world.keys, "e", "why", force=False, tombstone_ttl_ms=60_000))
    answer = world.run(executions.start(world.keys, Start("e", "f", input=b"1", payload=b"{}")))
    assert answer.reason == "tombstoned"
    assert answer.detail.endswith(" why")
    acme = Keys(tenant="acme")
    world.do(flows.put(acme, "f", None, "a" * 64, b"{}"))
    assert world.do(executions.start(acme, Start("e", "f", input=b"1", payload=b"{}"))).execution_id == "e"


def test_a_key_of_another_type_is_refused_and_kept(world):
    world.raw("SET", world.keys.row("e"), "somebody's")
    answer = world.run(executions.start(world.keys, Start("e", "f", input=b"1", payload=b"{}")))
    assert answer.reason == "wrong_type"
    assert world.raw("GET", world.keys.row("e")) == b"somebody's"


def test_bytes_pass_as_they_are(world):
    odd = b'{"n":912345678901234567,"z":"\\u0000","x":"\xff\xfe"}\x00'
    world.start("e", input=odd, payload=odd)
    entry = world.take_one()
    assert entry.fields[b"payload"] == odd
    assert world.begin(entry).value.input == odd


def test_D2_a_dedup_key_of_a_deleted_execution_starts_anew_also_when_its_row_came_back(world):
    world.start("e:1", dedup_key="k")
    row, claim = world.keys.row("e:1"), world.keys.start_dedup("k")
    dump = world.raw("DUMP", row)
    call = executions.delete(world.keys, "e:1", "why", force=True, tombstone_ttl_ms=60_000)
    world.do(call)
    world.raw("RESTORE", row, 0, dump)
    world.raw("SET", claim, "e:1")
    started = world.start("other", dedup_key="k")
    assert (started.execution_id, started.deduplicated) == ("other", False)
    assert world.raw("GET", claim) == b"other"

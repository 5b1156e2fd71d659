"""Definitions by hash, versions that point at one, and which version is the latest (DECISIONS 14)."""

from __future__ import annotations

import pytest

from plaita.store import flows
from plaita.store.call import Refused, Value
from plaita.store.flows import PutResult, Resolved


def put(world, version, digest, flow="g", force=False):
    return world.run(flows.put(world.keys, flow, version, digest * 64, digest.encode(), force=force))


@pytest.mark.parametrize(
    ("versions", "latest"),
    [
        (["1", "2", "10", "9"], "10"),
        (["1.2", "1.10", "1.9.9"], "1.10"),
        (["2", "latest", "3"], "latest"),
        (["beta", "1", "gamma"], "1"),
        (["alpha", "beta"], "beta"),
        (["20260101", "9"], "20260101"),
        (["1", "1.0"], "1.0"),
        (["007", "8"], "8"),
        (["99999999999999999998", "99999999999999999999", "99999999999999999997"], "99999999999999999999"),
        (["1..2", "0"], "0"),
        (["1.", "0.1"], "0.1"),
    ],
)
def test_latest(world, versions: list[str], latest: str):
    for position, version in enumerate(versions):
        assert isinstance(put(world, version, "abcdef"[position]), Value)
    assert world.do(flows.resolve(world.keys, "g")).version == latest
    assert world.do(flows.list_flows(world.keys))[-1].latest == latest


def test_without_a_version_the_next_integer(world):
    assert put(world, None, "a").value == PutResult("1", "a" * 64, True)
    assert put(world, "7", "b").value.version == "7"
    assert put(world, "beta", "c").value.version == "beta"
    assert put(world, None, "d").value == PutResult("8", "d" * 64, True)


def test_the_same_content_again_makes_no_version(world):
    put(world, None, "a")
    assert put(world, None, "a").value == PutResult("1", "a" * 64, False)
    assert put(world, "1", "a").value.created is False
    assert len(world.do(flows.versions(world.keys, "g"))) == 1


def test_another_content_under_a_version_needs_force(world):
    put(world, "1", "c")
    assert put(world, "1", "b") == Refused("version_exists", "c" * 64)
    assert world.do(flows.resolve(world.keys, "g", "1")) == Resolved("1", "c" * 64)
    assert put(world, "1", "b", force=True).value.created is True
    assert world.do(flows.resolve(world.keys, "g", "1")) == Resolved("1", "b" * 64)
    assert world.do(flows.body(world.keys, "c" * 64)) == b"c", "what waits still loads its own"


def test_what_is_not_there(world):
    assert world.run(flows.resolve(world.keys, "none")) == Refused("no_flow")
    assert world.run(flows.resolve(world.keys, "f", "9")) == Refused("no_version", "1")
    assert world.do(flows.body(world.keys, "z" * 64)) is None
    assert world.run(flows.versions(world.keys, "none")) == Refused("no_flow")
    assert world.run(flows.remove(world.keys, "none")) == Refused("no_flow")


def test_remove_takes_the_versions_and_keeps_the_bodies(world):
    put(world, None, "b")
    put(world, None, "c")
    assert world.do(flows.remove(world.keys, "g")) == 2
    assert world.run(flows.resolve(world.keys, "g")) == Refused("no_flow")
    assert [flow.flow_id for flow in world.do(flows.list_flows(world.keys))] == ["f"]
    assert world.do(flows.body(world.keys, "c" * 64)) == b"c"
    assert put(world, None, "d").value.version == "1"


def test_a_body_of_any_bytes_comes_back_as_it_was(world):
    body = bytes(range(256)) * 2000
    world.do(flows.put(world.keys, "big", None, "e" * 64, body))
    assert world.do(flows.body(world.keys, "e" * 64)) == body


def test_flows_with_awkward_ids_do_not_meet(world):
    for flow, digest in (("a:b", "a"), ("a", "b"), ("a%3Ab", "c")):
        put(world, None, digest, flow=flow)
    assert {flow.flow_id for flow in world.do(flows.list_flows(world.keys))} == {"f", "a:b", "a", "a%3Ab"}
    assert world.do(flows.resolve(world.keys, "a:b")).flow_hash == "a" * 64

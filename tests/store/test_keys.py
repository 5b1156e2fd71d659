"""Key names: no two ids share a key, and Python and Lua spell them alike (DECISIONS 18, KNOWN-TROUBLE 23)."""

from __future__ import annotations

import itertools

import pytest

from plaita.errors import InputError
from plaita.store.call import Call, script
from plaita.store.keys import DEFAULT_QUEUE, RESERVED_IDS, RESERVED_TENANTS, Keys, check_tenant, execution_part

AWKWARD = ["a:b", "a", "b:c", "c", "index", "expiry", "%69ndex", "in%64ex", "lease:x", "lease", "index:running",
           "a{b}c", "{a}", "0", "é", "\u0915\u093f", "a/b", "../x", "flow_list", "x" * 200]  # fmt: skip


def all_keys(keys: Keys, execution_id: str) -> list[str]:
    words = ("lease", "fence", "fencegen", "cancel", "noderefetch", "nofail", "g1wakeups")
    return [
        keys.row(execution_id),
        *(keys.of_execution(word, execution_id) for word in words),
        *(keys.noderetry(execution_id, node) for node in (None, "a", "b:c", "index")),
    ]


def test_no_two_ids_share_a_key():
    for tenant in ("default", "acme", "index"):
        keys = Keys(tenant=tenant)
        names = list(itertools.chain.from_iterable(all_keys(keys, execution_id) for execution_id in AWKWARD))
        names += [keys.index(), keys.expiry, *(keys.index(s) for s in ("running", "error"))]
        assert len(names) == len(set(names))


def test_tenants_share_no_key_with_each_other_or_the_platform():
    found: dict[str, str] = {}
    for tenant in ("default", "acme", "a.b", "index", "e"):
        keys = Keys(tenant=check_tenant(tenant))
        names = [*all_keys(keys, "acme"), keys.flow_list, keys.flow_versions("acme"), keys.flow_meta("acme")]
        names += [keys.flow_body("h"), keys.index(), keys.start_dedup("acme")]
        for name in names:
            assert found.setdefault(name, tenant) == tenant, name
    platform = Keys()
    for name in (platform.queue, platform.wake, platform.dead_letters, platform.delayed, platform.instance("x"),
                 platform.instances, platform.tombstone("x")):  # fmt: skip
        assert name not in found


@pytest.mark.parametrize("tenant", ["a:b", "a/b", *sorted(RESERVED_TENANTS)])
def test_tenants_that_would_meet_other_keys_are_refused(tenant: str):
    with pytest.raises(InputError, match="tenant"):
        check_tenant(tenant)


@pytest.mark.parametrize("tenant", ["", None, "default"])
def test_the_default_tenant_stands_in_no_key(tenant: str | None):
    assert Keys(tenant=check_tenant(tenant)).row("x") == "plaita:execution:x"


def test_every_first_word_of_the_default_tenant_is_reserved():
    """A tenant's name stands where these words stand: one that equalled a word would share its keys."""
    keys = Keys()
    names = [*all_keys(keys, "x"), keys.flow_list, keys.flow_versions("x"), keys.flow_meta("x"), keys.flow_body("x")]
    names += [
        keys.start_dedup("x"),
        keys.tombstone("x"),
        keys.instance("x"),
        keys.instances,
        keys.index(),
        DEFAULT_QUEUE,
    ]
    assert {name.split(":")[1] for name in names} <= RESERVED_TENANTS


def test_ids_in_two_normal_forms_are_one_id():
    assert Keys().row("e\u0301") == Keys().row("\u00e9")


@pytest.mark.parametrize("word", sorted(RESERVED_IDS))
def test_an_id_that_is_a_reserved_word_is_spelled_apart(word: str):
    assert execution_part(word) != word
    assert execution_part(word) not in {execution_part(other) for other in AWKWARD if other != word}


def test_lua_spells_keys_like_python(world):
    twin = script("_test_twin")
    twin.__dict__["text"] = (
        _library("key_part") + "local out = {'ok'}\n"
        "for i = 1, #ARGV, 2 do out[#out + 1] = namespace('plaita', ARGV[i]) .. ':execution:' .. "
        "execution_part(ARGV[i + 1]) end return out"
    )
    cases = list(itertools.product(["default", "", "acme", "a.b"], AWKWARD))
    args = [part for case in cases for part in case]
    reply = world.do(Call("twin", twin, (), args, "writer", True, lambda reply: [x.decode() for x in reply]))
    assert reply == [Keys(tenant=tenant).row(execution_id) for tenant, execution_id in cases]


def _library(name: str) -> str:
    from importlib import resources

    return resources.files("plaita.store").joinpath("scripts", "lib", f"{name}.lua").read_text() + "\n"


def test_streams_by_letter(keys: Keys):
    assert (keys.stream("q"), keys.stream("w")) == (keys.queue, keys.wake)
    with pytest.raises(ValueError, match="x"):
        keys.stream("x")


@pytest.mark.parametrize("execution_id", ["index", "expiry", "a:b", "a%b", "{x}"])
def test_awkward_ids_live_a_whole_life(world, execution_id: str):
    """Submitted, run, listed and deleted; the indexes stay intact."""
    entry, begun = world.running(execution_id)
    world.start("other")
    assert world.commit(begun, execution_id=execution_id).value.done_before is False
    assert world.finish(begun, entry, step=2, execution_id=execution_id).value.done_before is False
    from plaita.store import executions

    page = world.do(executions.list_executions(world.keys))
    assert {row["execution_id"] for row in page.rows} == {execution_id, "other"}
    world.do(executions.delete(world.keys, execution_id, "test", force=False, tombstone_ttl_ms=1000))
    page = world.do(executions.list_executions(world.keys))
    assert [row["execution_id"] for row in page.rows] == ["other"]

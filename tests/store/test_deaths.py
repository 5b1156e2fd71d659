"""How the lives of an instance ended: the first word on each stands, and the last ones are kept (ledger S14)."""

from __future__ import annotations

from plaita.store import deaths, registry
from plaita.store.call import Refused, Value
from plaita.store.deaths import LastLife


def register(world, incarnation, before=None):
    world.do(registry.register(world.keys, "host:1", incarnation, b"{r}", 30_000, before))


def died(world, incarnation, record=b'{"cause":"SIGKILL"}'):
    return world.run(deaths.record(world.keys, "host:1", incarnation, record))


def found(world, incarnation):
    return world.do(deaths.find(world.keys, "host:1", incarnation))


def test_S14_a_death_is_found_by_its_life(world):
    register(world, "i1")
    assert world.do(deaths.last_life(world.keys, "host:1")) == LastLife("i1", b"{r}")
    assert died(world, "i1") == Value(True)
    assert found(world, "i1") == b'{"cause":"SIGKILL"}'
    assert found(world, "i2") is None
    assert found(world, "i") is None
    ttl = world.raw("PTTL", world.keys.deaths("host:1"))
    assert deaths.TTL_MS - 60_000 < ttl <= deaths.TTL_MS


def test_S14_the_first_word_on_a_life_stands(world):
    register(world, "i1")
    died(world, "i1")
    assert died(world, "i1", b"{other}") == Value(False)
    assert found(world, "i1") == b'{"cause":"SIGKILL"}'


def test_S14_a_death_is_not_put_on_the_life_after(world):
    register(world, "i1")
    register(world, "i2", before="i1")
    assert died(world, "i1") == Refused("another", "i2")
    assert world.raw("EXISTS", world.keys.deaths("host:1")) == 0


def test_S14_a_life_nobody_knows_has_no_death(world):
    assert world.do(deaths.last_life(world.keys, "host:1")) == LastLife(None, None)
    assert died(world, "i1") == Refused("another", "")


def test_S14_a_life_is_known_after_its_record_has_run_out(world):
    register(world, "i1")
    world.raw("DEL", world.keys.instance("host:1"))
    assert world.raw("PTTL", world.keys.incarnation("host:1")) > 30_000
    assert world.do(deaths.last_life(world.keys, "host:1")) == LastLife("i1", None)
    assert died(world, "i1") == Value(True)


def test_S14_the_last_deaths_are_kept(world):
    before = None
    for number in range(deaths.KEPT + 3):
        register(world, f"i{number}", before)
        died(world, f"i{number}", b"%d" % number)
        before = f"i{number}"
    assert world.raw("LLEN", world.keys.deaths("host:1")) == deaths.KEPT
    assert found(world, "i2") is None
    assert found(world, "i3") == b"3"
    assert found(world, before) == b"%d" % (deaths.KEPT + 2)

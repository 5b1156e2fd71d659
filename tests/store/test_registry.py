"""One record an instance; another incarnation's is not touched (DECISIONS 1, ledger G1, G2)."""

from __future__ import annotations

from plaita.store import registry, server
from plaita.store.call import Refused, Value
from plaita.store.registry import Instance


def register(world, incarnation="i1", record=b"{1}", **changes):
    return world.run(registry.register(world.keys, "host:1", incarnation, record, 30_000, **changes))


def test_register_heartbeat_unregister(world):
    assert register(world) == Value(True)
    assert world.do(registry.get(world.keys, "host:1")) == Instance("host:1", "i1", b"{1}")
    assert 0 < world.raw("PTTL", world.keys.instance("host:1")) <= 30_000
    world.do(registry.heartbeat(world.keys, "host:1", "i1", b"{2}", 30_000))
    assert world.do(registry.list_instances(world.keys)) == [Instance("host:1", "i1", b"{2}")]
    assert world.do(registry.unregister(world.keys, "host:1", "i1")) is True
    assert world.do(registry.get(world.keys, "host:1")) is None
    assert world.do(registry.list_instances(world.keys)) == []


def test_a_second_live_process_of_the_same_id_is_refused(world):
    register(world)
    assert register(world, "i2", b"{other}") == Refused("taken", "{1}")
    assert world.run(registry.heartbeat(world.keys, "host:1", "i2", b"{other}", 1000)) == Refused("taken", "{1}")
    assert world.do(registry.unregister(world.keys, "host:1", "i2")) is False
    assert world.do(registry.get(world.keys, "host:1")).record == b"{1}"


def test_taking_over_from_a_known_dead_one(world):
    register(world)
    assert register(world, "i2", b"{2}", expected_incarnation="i9").reason == "taken"
    assert register(world, "i2", b"{2}", expected_incarnation="i1") == Value(True)
    assert world.do(registry.get(world.keys, "host:1")) == Instance("host:1", "i2", b"{2}")


def test_a_record_that_ran_out_is_written_anew(world):
    register(world)
    world.raw("DEL", world.keys.instance("host:1"))
    assert world.run(registry.heartbeat(world.keys, "host:1", "i1", b"{3}", 1000)) == Value(True)
    assert world.do(registry.get(world.keys, "host:1")).record == b"{3}"


def test_a_foreign_record_without_incarnation_is_somebodys(world):
    world.raw("SET", world.keys.instance("host:1"), "{theirs}")
    assert register(world) == Refused("taken", "{theirs}")


def test_G2_a_stopped_mark_lives_shortly(world):
    register(world)
    assert world.do(registry.unregister(world.keys, "host:1", "i1", b'{"status":"stopped"}', 5000)) is True
    assert world.do(registry.get(world.keys, "host:1")).record == b'{"status":"stopped"}'
    assert 0 < world.raw("PTTL", world.keys.instance("host:1")) <= 5000


def test_server_info(world):
    info = world.do(server.server_info(world.keys))
    assert (info.product, info.role, info.cluster_enabled, info.aof) == ("valkey", "master", False, True)
    assert len(info.run_id) == len(info.replication_id) == 40
    assert info.version.split(".")[0].isdigit()
    assert world.do(server.ping(world.keys)) is True

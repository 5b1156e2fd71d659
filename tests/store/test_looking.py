"""Reading for a diagnosis on a real server: what each look answers, and that a user's rights are told as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import plaita
from plaita.client import doctor_bridges
from plaita.client.asking import Asking
from plaita.policy.doctor.server import RULES
from plaita.store import bridges, delayed, looking, permissions, registry, tenants
from plaita.store.call import Call, Unavailable
from plaita.store.keys import Keys
from plaita.store.looking import LookingRunner
from plaita.testing.server import Server

STORE = Path(plaita.__file__).parent / "store"


@pytest.fixture
def eye(plaita_server: Server) -> Iterator[LookingRunner]:
    with LookingRunner(plaita_server.url) as runner:
        yield runner


# -- the queue ------------------------------------------------------------------------------------


def test_a_stream_that_is_not_there_or_is_no_stream(world: Any, eye: LookingRunner) -> None:
    assert eye.do(looking.stream(world.keys, "q")).kind == "none"
    world.raw("RPUSH", world.keys.queue, "x")
    found = eye.do(looking.stream(world.keys, "q"))
    assert (found.kind, found.length, found.group) == ("list", 0, False)


def test_a_stream_without_its_group_then_with_it(world: Any, eye: LookingRunner) -> None:
    world.start("a")
    world.start("b")
    found = eye.do(looking.stream(world.keys, "q"))
    assert (found.kind, found.length, found.group, found.lag, found.oldest) == ("stream", 2, False, 2, None)
    assert found.unread
    entry = world.take_one()
    found = eye.do(looking.stream(world.keys, "q"))
    assert (found.group, found.pending, found.lag) == (True, 1, 1)
    assert found.oldest is not None
    assert found.oldest[:2] == (entry.entry_id, world.consumer)
    assert found.unread > entry.entry_id
    assert [(name, pending) for name, pending, _ in found.consumers] == [(world.consumer, 1)]


def test_C3_stamps_of_what_is_pending(world: Any, eye: LookingRunner) -> None:
    for family in ("cf1-a", "cf1-a", "cf1-b"):
        world.raw("XADD", world.keys.queue, "*", "payload", "{}", "config_family", family, "budget_generation", "bg1-a")
    world.raw("XADD", world.keys.queue, "*", "payload", "{}")
    assert eye.do(looking.stamps(world.keys, "q")) == [], "no group yet"
    world.take(10)
    found = eye.do(looking.stamps(world.keys, "q"))
    assert sorted(found) == [("", "", 1), ("cf1-a", "bg1-a", 2), ("cf1-b", "bg1-a", 1)]


def test_what_lies_aside(world: Any, eye: LookingRunner) -> None:
    body = [("payload", b"{}"), ("execution_id", "e")]
    world.do(delayed.put(world.keys, "late", -60_000, body))
    world.do(delayed.put(world.keys, "later", 60_000, body))
    world.do(tenants.set_status(world.keys.for_tenant("acme"), "disabled", "7"))
    world.raw("SADD", world.keys.parked_tenants, "acme", "empty")
    world.raw("RPUSH", world.keys.for_tenant("acme").parked("q"), "a", "b")
    found = eye.do(looking.aside(world.keys, 30_000))
    assert (found.delayed, found.overdue, found.parked, found.statuses, found.epoch) == (2, 1, {"acme": 2}, 1, "7")
    assert found.overdue_ms >= 60_000
    assert eye.do(looking.aside(world.keys, 3_600_000)).overdue == 0
    assert (found.scheduled, found.late, found.late_ms) == (0, 0, 0)


@pytest.mark.parametrize(
    ("score", "late", "at_least_ms"), [("1", 1, 10**12), ("-inf", 1, 2**53), ("1e300", 0, 0), ("+inf", 0, 0)]
)
def test_due_times_lie_aside(world: Any, eye: LookingRunner, score: str, late: int, at_least_ms: int) -> None:
    world.raw("ZADD", world.keys.schedules_due, score, "default\0s", "1e300", "default\0t")
    found = eye.do(looking.aside(world.keys, 30_000))
    assert (found.scheduled, found.late) == (2, late)
    assert found.late_ms >= at_least_ms


def test_keys_of_other_kinds_are_no_crash(world: Any, eye: LookingRunner) -> None:
    for key in (world.keys.delayed, world.keys.parked_tenants, world.keys.tenant_status, world.keys.schedules_due):
        world.raw("SET", key, "x")
    world.raw("RPUSH", world.keys.tenant_epoch, "x")
    assert eye.do(looking.aside(world.keys, 1)) == looking.Aside(0, 0, 0, {}, 0, "")


# -- executions -----------------------------------------------------------------------------------


def test_rows_under_way(world: Any, eye: LookingRunner) -> None:
    _, begun = world.running("run:1")
    world.commit(begun, execution_id="run:1")
    page = eye.do(looking.rows(world.keys, "running"))
    [row] = page.rows
    assert (page.cursor, page.there, row.execution_id, row.status, row.node) == ("0", 1, "run:1", "running", "b")
    assert row.lease == begun.lease_value
    assert 0 <= row.quiet_ms < 60_000
    assert (row.woken, row.due_in_ms, row.timer) == (False, None, True)
    assert eye.do(looking.these_rows(world.keys, ["run:1", "gone"])).rows[0].execution_id == "run:1"


def test_a_timer_that_is_gone_is_seen(world: Any, eye: LookingRunner) -> None:
    row = world.keys.row("e")
    far = 4_000_000_000_000
    world.raw(
        "HSET", row, "status", "suspended", "last_update_time", "1", "wait", "3", "wait_deadline", far, "woken", ""
    )
    world.raw("ZADD", world.keys.index("suspended"), 1, "e")
    [seen] = eye.do(looking.rows(world.keys, "suspended")).rows
    assert (seen.timer, seen.woken) == (False, False)
    assert seen.due_in_ms is not None
    assert seen.due_in_ms > 0
    world.raw("ZADD", world.keys.delayed, far, f"wait {world.keys.ns} e 3")
    assert eye.do(looking.rows(world.keys, "suspended")).rows[0].timer
    world.raw("SET", world.keys.cancel("e"), "enough")
    assert eye.do(looking.rows(world.keys, "suspended")).rows[0].woken
    world.raw("DEL", row)
    world.raw("RPUSH", row, "of another kind")
    assert eye.do(looking.rows(world.keys, "suspended")).rows == []


def test_the_registry(world: Any, eye: LookingRunner) -> None:
    world.do(registry.register(world.keys, "h1", "i1", b'{"a":1}', 60_000))
    world.raw("ZADD", world.keys.instances, 1, "ghost")
    names = eye.do(looking.instance_names(world.keys))
    assert names == ["h1", "ghost"]
    assert eye.do(looking.records(world.keys, names)) == [(b'{"a":1}', "i1"), (None, "")]


# -- rights ---------------------------------------------------------------------------------------


def as_user(server: Server, name: str) -> LookingRunner:
    return LookingRunner(f"unix://{quote(server.socket_path)}?username={name}&password=pw")


def test_every_command_that_plaita_uses_is_asked_for() -> None:
    used = {"EVALSHA"}
    for file in STORE.rglob("*.lua"):
        text = file.read_text()
        used.update(re.findall(r"redis\.p?call\('([A-Za-z]+)'", text))
        used.update(re.findall(r"(?:value_of|number_of|members|text_at)\('([A-Z]+)'", text))
        used.update(re.findall(r"and '([LR]PUSH)' or '([LR]PUSH)'", text)[0] if "PUSH' or" in text else ())
    for file in STORE.glob("*.py"):
        used.update(re.findall(r'\("([A-Z]{3,})"[,)]', file.read_text()))
    asked = {words[0] for _, words in permissions.commands(Keys())}
    # what the login itself needs no right for, what only the doctor asks, and words that are no commands
    apart = {"AUTH", "SETNAME", "SELECT", "HELLO", "CONFIG", "ACL", "NOSCRIPT", "PATH", "SENTINEL"}
    apart |= {"LMOVE", "SUBSCRIBE", "UNSUBSCRIBE", "XREAD"}  # given to the servers that redis_queue nodes name
    assert used - asked - apart == set()
    assert asked - used - {"SMEMBERS", "EVAL"} == set()


def test_the_default_user_may_all_and_every_command_is_well_formed(world: Any, eye: LookingRunner) -> None:
    assert eye.do(permissions.denied(world.keys)) == permissions.Denied([], [])
    world.raw("ACL", "SETUSER", "nothing", "on", ">pw", "~*", "-@all", "+eval", "+evalsha", "+hello", "+ping")
    with as_user(world.server, "nothing") as runner:
        told = runner.do(permissions.denied(world.keys))
    # one whose words are wrong would count as allowed
    assert told is not None
    assert told.patterns == ["plaita:*"]
    assert {"info", "scan", "time", "client|unblock"} == set(told.commands)


def test_the_rules_that_are_advised_are_enough(world: Any) -> None:
    rules = [f"~{pattern}" for pattern in permissions.patterns(world.keys)] + RULES.split(" ")
    world.raw("ACL", "SETUSER", "advised", "on", ">pw", "-@all", *rules)
    with as_user(world.server, "advised") as runner:
        assert runner.do(permissions.denied(world.keys)) == permissions.Denied([], [])
        assert runner.do(looking.stream(world.keys, "q")).kind == "none"


def test_a_right_that_lacks_is_named(world: Any) -> None:
    world.raw("ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-xclaim", "-xgroup|create")
    with as_user(world.server, "weak") as runner:
        assert runner.do(permissions.denied(world.keys)) == permissions.Denied(["xclaim", "xgroup|create"], [])


def test_keys_that_lack_are_named(world: Any) -> None:
    keys = Keys(queue="jobs")
    world.raw("ACL", "SETUSER", "narrow", "on", ">pw", "~plaita:*", "+@all")
    with as_user(world.server, "narrow") as runner:
        assert runner.do(permissions.denied(keys)) == permissions.Denied([], ["jobs*"])
        assert runner.do(permissions.denied(Keys())) == permissions.Denied([], [])


def test_patterns() -> None:
    assert permissions.patterns(Keys()) == ["plaita:*"]
    assert permissions.patterns(Keys(queue="jobs", dlq="dead")) == ["plaita:*", "jobs*", "dead*"]


# -- who serves nobody ----------------------------------------------------------------------------


def test_a_user_without_ping_may_look(world: Any) -> None:
    world.raw("ACL", "SETUSER", "mute", "on", ">pw", "-@all", "+hello")
    with as_user(world.server, "mute") as runner:
        answer = runner.run(looking.info(world.keys))
        assert isinstance(answer, Unavailable)
        assert "NOPERM" in answer.error


@pytest.mark.parametrize(("change", "words"), [("password=wrong", "WRONGPASS"), ("", "no database 99")])
def test_a_bad_login_is_told(world: Any, change: str, words: str) -> None:
    url = world.server.url
    url = f"{url.partition('?')[0]}?{change}" if change else f"{url}&db=99"
    with LookingRunner(url) as runner:
        answer = runner.run(looking.info(world.keys))
        assert isinstance(answer, Unavailable)
        assert words in answer.error


def test_settings_and_clock(world: Any, eye: LookingRunner) -> None:
    assert eye.do(looking.setting(world.keys, "appendonly")) == "yes"
    assert eye.do(looking.setting(world.keys, "no-such-setting")) is None
    assert eye.do(looking.user(world.keys)) == "default"
    now: Call[int] = Call("now", None, (), ("TIME",), "writer", True, lambda reply: int(reply[0]))
    assert abs(eye.do(looking.time_ms(world.keys)) / 1000 - eye.do(now)) < 60


# -- queues on other servers ------------------------------------------------------------------------


def test_E1_what_nobody_reads_for_and_what_is_left_of_waits_that_are_over(there: Any, eye: LookingRunner) -> None:
    assert eye.do(looking.bridges(there.keys, -1)).waits == 0
    for name in ("e", "e2"):
        there.waits(name)
    page = there.world.do(bridges.take(there.keys, "redis_queue", "me", 1))
    found = eye.do(looking.bridges(there.keys, -1))
    assert (found.waits, found.unread, found.left, found.more) == (2, 1, [], False)
    assert found.unread_since is not None
    assert eye.do(looking.bridges(there.keys, 60_000)).unread == 0, "it is given time"
    wait = there.world.do(bridges.begin(there.keys, page.taken[0][0], ""))
    there.ends("e")
    there.world.do(bridges.left(there.keys))
    there.world.raw("HSET", there.keys.bridges, "x:over", "1")
    found = eye.do(looking.bridges(there.keys, -1))
    left = {one.execution_id if one else "": (since > 1, becomes) for one, since, becomes in found.left}
    assert left == {"": (False, "back"), "e": (True, "back")}
    there.world.raw("HSET", there.keys.bridges, f"{wait.digest}:over", "1", f"{wait.digest}:ended", "used 2")
    [told] = [one for one in doctor_bridges.look(Asking(eye), there.keys) if one.check == "queue.bridges_left"]
    assert told.value.endswith(f"{there.place}/0 'q' (used) 1, unknown server 1")
    assert there.target.password not in str(told)
    assert found.waits == 1
    assert wait.execution_id == "e"

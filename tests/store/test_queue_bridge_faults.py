"""What goes wrong around bridges (ledger E1, DECISIONS 41): answers that are lost, hosts that cannot read for what they
hold, servers that never come back, messages that are too large."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bridge_world import Host, Queues, settled

from plaita import jsontext
from plaita.policy import bridges as policy
from plaita.services import bridges as service
from plaita.services import queue_leftovers, queue_links
from plaita.services.queue_links import Link, TargetAway
from plaita.store import bridges, queues

MIB = 1024 * 1024
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, seconds in (
        (service, "LOOK_EVERY_S", 0.05),
        (service, "BUSY_SHARE", 1),
        (service, "LET_GO_S", 0.5),
        (queue_links, "BUSY_SHARE", 0),
        (queue_leftovers, "EVERY_S", 0.05),
    ):
        monkeypatch.setattr(module, name, seconds)


# -- what a host holds, it reads for -----------------------------------------------------------------


def test_E1_waits_whose_taking_was_not_answered_are_read_for(there: Queues) -> None:
    there.waits("e")
    there.waits("e2")
    there.push(1, 2)
    there.serve(
        lambda: bool(there.message("e") and there.message("e2")) and settled(there),
        prepare=lambda host: host.lost.update({"bridges.take": 1}),
    )
    assert there.kept() == []


def test_E1_a_page_that_a_host_did_not_get_through_is_read_for(there: Queues) -> None:
    there.waits("e", there.config(redis={"host": "elsewhere"}))  # told so by a call that fails
    there.waits("e2")
    there.push(1)
    there.serve(
        lambda: bool(there.message("e") and there.message("e2")) and settled(there),
        prepare=lambda host: host.away.update({"bridges.wake": 4}),
    )
    assert there.message("e2")["message"] == 1


def test_E1_no_wait_is_passed_over_when_others_end_between_two_pages(
    there: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "PAGE", 3)
    names = [f"e{n}" for n in range(8)]
    for name in names:
        there.waits(name)
    seen, after = [], bridges.FIRST
    for ends in (names[:3], ["e3"], [], []):
        page = there.world.do(bridges.take(there.keys, "redis_queue", "me", 10, after=after))
        seen += [wait.execution_id for wait, _ in page.taken]
        after = page.last if page.count else after
        for name in ends:
            there.ends(name)
    assert seen == names


def test_E1_waits_that_began_in_one_moment_are_all_found(there: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "PAGE", 2)
    names = [f"e{n}" for n in range(7)]
    for name in names:
        there.waits(name)
        there.world.raw("ZADD", there.keys.tasks_of_all("redis_queue"), 5, f"default:redis_queue_w_{name}")
    seen, after, pages = [], bridges.FIRST, 0
    while pages < 10:
        page = there.world.do(bridges.take(there.keys, "redis_queue", "me", 10, after=after))
        seen += [wait.execution_id for wait, _ in page.taken]
        after, pages = page.last, pages + 1
        if page.count < 2:
            break
    assert seen == names


def test_E1_a_host_with_too_many_servers_leaves_the_rest_to_others(
    there: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_LINKS", 1)
    there.waits("e")
    there.waits("e2", there.config(redis={"db": 1}))
    there.push(1)
    there.target.do("EVAL", "redis.call('SELECT', 1) return redis.call('RPUSH', 'q', '2')", 0)
    there.serve(lambda: bool(there.message("e") and there.message("e2")) and settled(there), hosts=2)
    assert there.message("e2")["message"] == 2


def test_E1_a_host_that_may_not_connect_leaves_what_another_has_begun(there: Queues) -> None:
    there.waits()
    there.push(1)
    there.taken_by_a_host_that_died()

    def only_the_second(host: Host) -> None:
        host.redis_targets = (there.place,) if host.consumer == "host1" else ()

    [_, second] = there.serve(lambda: there.message() is not None and settled(there), 2, prepare=only_the_second)
    assert there.message()["message"] == 1
    assert second.counts == {"queue_messages": 1}


def test_E1_a_host_that_is_cut_off_from_the_server_leaves_it_to_others(
    there: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "AWAY_S", 0.1)
    rounds = Link._round
    tried = []

    async def cut_off(link: Link) -> None:
        if link._host.consumer == "host0":  # type: ignore[attr-defined]
            tried.append(link)
        if link._host.consumer == "host0" or not tried:  # type: ignore[attr-defined]
            raise TargetAway("for a test")
        await rounds(link)

    monkeypatch.setattr(Link, "_round", cut_off)
    there.waits()
    there.push(1)
    hosts = there.serve(lambda: there.message() is not None and settled(there), hosts=2)
    assert [host.counts.get("queue_messages", 0) for host in hosts] == [0, 1]


def test_E1_a_wait_that_came_back_with_a_backup_gets_its_message(there: Queues) -> None:
    there.waits()
    before = there.world.raw("DUMP", there.keys.row("e"))
    there.push(1)
    there.serve(lambda: there.message() is not None and settled(there))
    there.world.raw("RESTORE", there.keys.row("e"), 0, before, "REPLACE")
    task = there.keys.task_places("redis_queue", "redis_queue_w_e")
    there.world.raw("ZADD", task[2], 1, task[3])
    there.world.raw("HSET", task[1], task[4], "e")
    there.push(2)
    there.serve(lambda: there.message() is not None and settled(there))
    assert (there.message()["message"], there.kept(), there.left_behind()) == (2, [], [])


def test_E1_a_wait_that_goes_on_after_a_cancel_was_undone_gets_its_message(there: Queues) -> None:
    there.waits()
    there.world.raw("SET", there.keys.cancel("e"), "asked for")
    there.push(1)

    def undone() -> bool:
        if there.left_behind() == [] and settled(there) and there.target.do("EXISTS", queues.closed("q", digest)):
            there.world.raw("DEL", there.keys.cancel("e"))
        return there.message() is not None and settled(there)

    digest = there.world.do(bridges.take(there.keys, "redis_queue", "dead", 10, lock_ms=1)).taken[0][0].digest
    there.serve(undone)
    assert (there.message()["message"], there.kept(), there.left_behind()) == (1, [], [])


def test_R6_a_host_that_stops_waits_for_no_answer(there: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RELEASE_S", 0.05)
    there.waits()
    stood: list[str] = []
    run = Host.run

    async def never(host: Host, call: Any) -> Any:
        if call.name == "bridges.release":
            stood.append(call.name)
            await asyncio.Event().wait()
        return await run(host, call)

    monkeypatch.setattr(Host, "run", never)
    there.serve(lambda: bool(there.records()))
    assert stood == ["bridges.release"]


# -- servers that do not come back --------------------------------------------------------------------


def left_for_a_dead_server(there: Queues, since_ms: int | None = None) -> bridges.Wait:
    """A wait that is over, whose messages a host had moved on a server that has gone since."""
    there.waits(config=there.config(redis={"port": 1, "password": "S3cr3t-marker"}))
    page = there.world.do(bridges.take(there.keys, "redis_queue", "dead", 10, lock_ms=1))
    wait = there.world.do(bridges.begin(there.keys, page.taken[0][0], ""))
    there.ends()
    if since_ms is not None:
        there.world.raw("HSET", there.keys.bridges, f"{wait.digest}:over", since_ms)
    return wait


def test_E1_what_is_left_for_a_server_that_is_away_is_shown_and_kept(there: Queues) -> None:
    wait = left_for_a_dead_server(there)
    there.waits("e2")
    there.push(1)

    def shown() -> bool:
        rows = {row["target"]: row for row in there.bridges[0].state()["targets"]}
        away = rows.get("127.0.0.1:1/0")
        return there.message("e2") is not None and away is not None and (away["left"], away["waits"]) == (1, 0)

    [host] = there.serve(shown, allowed=(there.place, "127.0.0.1:1"))
    row = there.bridges[0].state()["targets"][0]
    assert row["left_since"] is not None
    assert row["away_since"] == row["left_since"]
    assert "refused" in row["error"]
    told = [fields for event, fields in host.said if event == "queue.target_away"]
    assert [fields["left"] for fields in told] == [1]
    assert there.world.raw("HEXISTS", there.keys.bridges, wait.digest) == 1
    assert "S3cr3t-marker" not in str(host.said) + str(there.bridges[0].state())


@pytest.mark.parametrize("allowed", [True, False])
def test_E1_after_a_month_it_is_told_where_the_messages_lie_and_given_up(there: Queues, allowed: bool) -> None:
    wait = left_for_a_dead_server(there, since_ms=there.now() - 31 * DAY_MS)
    [host] = there.serve(lambda: settled(there), allowed=("127.0.0.1:1",) if allowed else ())
    [fields] = [fields for event, fields in host.said if event == "queue.given_up"]
    assert fields["messages"] == f"q:processing:{wait.digest}"
    assert (fields["target"], fields["they_are"], fields["execution_id"]) == ("127.0.0.1:1", "to be put back", "e")
    assert host.counts["queue_leftovers_given_up"] == 1
    assert "S3cr3t-marker" not in str(host.said)


def test_E1_what_nothing_is_left_of_there_needs_no_server(there: Queues) -> None:
    for kind in ("stream", "pubsub"):
        there.waits(kind, there.config("s", kind, redis={"port": 1}))
    for wait, _ in there.world.do(bridges.take(there.keys, "redis_queue", "dead", 10, lock_ms=1)).taken:
        there.world.do(bridges.begin(there.keys, wait, "1-0"))
        there.ends(wait.execution_id)
    there.serve(lambda: settled(there), allowed=())


@pytest.mark.parametrize("record", [b"?", b"default\nx\n1\n1\n{", b'default\nx\n1\n1\n["t","{}","f","n",""]'])
def test_E1_a_record_that_nobody_can_read_holds_up_no_other(there: Queues, record: bytes) -> None:
    there.world.raw("HSET", there.keys.bridges, "0" * 40, record)
    there.waits()
    there.push(1)
    there.taken_by_a_host_that_died(woken=True)
    [host] = there.serve(lambda: settled(there))
    [fields] = [fields for event, fields in host.said if event == "queue.record_unreadable"]
    assert fields["messages"] == f"*:processing:{'0' * 40}"
    assert there.left_behind() == []


# -- messages ---------------------------------------------------------------------------------------


def test_E1_messages_of_a_mebibyte(there: Queues) -> None:
    message = {"text": "x" * MIB}
    for kind in ("list", "stream"):
        there.waits(kind, there.config(kind, kind))
    there.push(message, name="list")
    there.target.do("XADD", "stream", "*", "body", jsontext.dumps(message))
    there.serve(lambda: bool(there.message("list") and there.message("stream")) and settled(there))
    assert there.message("list")["message"] == message
    assert there.message("stream")["message"] == {"body": message}


@pytest.mark.parametrize("message", [b'"' + b"x" * 5 * MIB + b'"', b"[" + b'"",' * MIB + b"1]"], ids=["long", "quotes"])
def test_S7_a_message_that_fits_into_no_result_is_told_and_put_aside(there: Queues, message: bytes) -> None:
    there.waits()
    there.push(message, 2)
    there.serve(lambda: there.message() is not None and settled(there))
    said = there.message()
    assert said["success"] is False
    assert str(len(message)) in said["error_message"]
    assert len(said["error_message"]) < 1000
    assert there.target.do("LRANGE", "q:bad", 0, -1) == [message]
    assert there.kept() == [2]


def test_E1_a_batch_holds_as_many_as_fit_and_leaves_the_rest_in_order(there: Queues) -> None:
    messages = ["x" * MIB + str(n) for n in range(6)]
    there.waits("list", there.config(batch=10))
    there.waits("stream", there.config("s", "stream", batch=10, form="text"))
    there.push(*messages)
    for message in messages:
        there.target.do("XADD", "s", "*", "n", message)
    there.serve(lambda: bool(there.message("list") and there.message("stream")) and settled(there))
    assert there.message("list")["message"] == messages[:3]
    assert there.kept() == messages[3:]
    assert there.message("stream")["message"] == [{"n": message} for message in messages[:3]]


def test_S7_in_a_batch_only_what_cannot_be_read_is_put_aside(there: Queues) -> None:
    for name in ("e", "e2", "e3"):
        there.waits(name, there.config(batch=4))
    there.push(1, 2, b"{bad", 3)
    there.serve(lambda: bool(there.message("e") and there.message("e2") and there.message("e3")) and settled(there))
    said = [there.message(name) for name in ("e", "e2", "e3")]
    assert sorted(str(one.get("message")) for one in said) == ["None", "[1, 2]", "[3]"]
    assert there.target.do("LRANGE", "q:bad", 0, -1) == [b"{bad"]
    assert (there.kept(), there.left_behind()) == ([], [])


def test_S7_a_host_that_finds_a_batch_half_used_gives_the_rest_back(there: Queues) -> None:
    there.waits(config=there.config(batch=4))
    there.push(1, b"{bad", 3)
    there.taken_by_a_host_that_died(woken=True)
    there.serve(lambda: settled(there))
    assert there.message()["message"] == [1]
    assert there.target.do("LRANGE", "q", 0, -1) == [b"{bad", b"3"]
    assert there.left_behind() == []


def test_E1_a_stream_that_is_trimmed_meanwhile_gives_what_is_left(there: Queues) -> None:
    there.waits(config=there.config("s", "stream"))
    [taken] = there.world.do(bridges.take(there.keys, "redis_queue", "dead", 10, lock_ms=1)).taken
    there.world.do(bridges.begin(there.keys, taken[0], f"{there.now() - 1000}-0"))
    for n in range(3):
        there.target.do("XADD", "s", "*", "n", n)
    there.target.do("XTRIM", "s", "MAXLEN", 1)
    there.serve(lambda: there.message() is not None and settled(there))
    assert there.message()["message"] == {"n": 2}


def test_E1_a_message_of_a_channel_outlives_calls_that_fail(there: Queues) -> None:
    there.waits(config=there.config("c", "pubsub"))
    published = []

    def said() -> bool:
        if there.target.do("PUBSUB", "NUMSUB", "c")[1] and not published:
            published.append(there.target.do("PUBLISH", "c", '"once"'))
        return there.message() is not None and settled(there)

    [host] = there.serve(said, prepare=lambda host: host.away.update({"bridges.wake": 4}))
    assert there.message()["message"] == "once"
    assert host.away == {"bridges.wake": 0}


def test_a_channel_is_kept_no_longer_than_the_wait_needs() -> None:
    queue = policy.Queue(policy.Target("h", 1, 0), "c", "pubsub", "raw", 2)
    wait = bridges.Wait("d", "default", "t", "e", "1", "1", b"{}", "f", "w")
    reading = queue_links.Reading(wait, queue, 0, 0.0)
    for message in (b"a", b"b", b"c"):
        reading.hear(message)
    assert reading.heard == [b"a", b"b"]
    large = queue_links.Reading(wait, queue, 0, 0.0)
    large.hear(b"x" * (policy.MAX_MESSAGE_BYTES + 1))
    large.hear(b"y")
    assert (len(large.heard[0]), len(large.heard), large.heard_bytes) == (200, 1, policy.MAX_MESSAGE_BYTES + 1)


def test_the_names_on_a_queues_server() -> None:
    assert queues.closed("q", "d") == "q:processing:d:closed"


def test_E1_however_long_a_look_takes_locks_are_renewed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOOK_EVERY_S", 1.0)
    monkeypatch.setattr(service, "BUSY_SHARE", 10)
    assert [service.rest_s(took) for took in (0.0, 0.2, 3.0)] == [1.0, 2.0, 5.0]

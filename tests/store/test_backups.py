"""Keys of an execution that come back from a backup, one or two at a time, give who held it then no right to write
(ledger L2, DECISIONS 2).

A holder had it when the backup was taken; since then it has gone on in one of the ways of ``SINCE``. Then each key of
the backup, and each pair of them, is brought back, and the old holder tries all that a holder can do.

One pair is the right itself as it was, fence and generation together: no script can tell it from the truth. What it
gives is tried by itself: with it too, one hand writes and not two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest

from plaita.store import executions, failures, leases
from plaita.store.call import Call, Refused, Value
from plaita.store.carriers import Entry
from plaita.store.executions import Begun, HandOn, Postpone, Retake
from plaita.store.failures import CountFailure
from plaita.store.leases import Beat, Renewal

TTL = 600_000


@dataclass
class Old:
    """What the old holder believes: its token, the step it runs and the node of that."""

    entry: Entry
    begun: Begun
    step: int
    node: str


# -- when the backup was taken --------------------------------------------------------------------------------------


def begun_only(world: Any) -> Old:
    entry, begun = world.running()
    return Old(entry, begun, 1, "a")


def a_step_on(world: Any) -> Old:
    entry, begun = world.running()
    world.commit(begun, 1, "a", "b")
    return Old(entry, begun, 2, "b")


def with_failures(world: Any) -> Old:
    entry, begun = world.running()
    world.do(failures.count_failure(world.keys, CountFailure("e", begun.token, 1, "a")))
    return Old(entry, begun, 1, "a")


def resumed(world: Any) -> Old:
    world.suspended(timeout_ms=TTL)
    world.wake()
    entry = world.take_one()
    return Old(entry, world.begin(entry, kind="event", nonce="w1").value, 2, "w")


WHEN = {one.__name__: one for one in (begun_only, a_step_on, with_failures, resumed)}


# -- what has happened since ------------------------------------------------------------------------------------------


def again(world: Any, old: Old, nonce: str = "n2") -> Begun:
    """Taken over by another, after the lease of the one before has run out."""
    world.raw("DEL", world.keys.lease("e"))
    found: Begun = world.begin(old.entry, nonce=nonce, holder="host2/second").value
    return found


def taken(world: Any, old: Old) -> None:
    again(world, old)


def taken_and_lost(world: Any, old: Old) -> None:
    again(world, old)
    world.raw("DEL", world.keys.lease("e"))


def taken_and_advanced(world: Any, old: Old) -> None:
    assert isinstance(world.commit(again(world, old), old.step, old.node, "c"), Value)


def taken_and_left(world: Any, old: Old) -> None:
    taken_and_advanced(world, old)
    world.raw("DEL", world.keys.lease("e"))


def taken_and_postponed(world: Any, old: Old) -> None:
    begun = again(world, old)
    request = Postpone("e", begun.token, old.step, TTL, "copy", [("payload", b"c")], "q", old.entry.entry_id, True)
    world.do(executions.postpone(world.keys, request))


def taken_and_suspended(world: Any, old: Old) -> None:
    assert isinstance(world.suspend(again(world, old), old.entry, old.step, node_id=old.node), Value)


def taken_suspended_and_woken(world: Any, old: Old) -> None:
    taken_and_suspended(world, old)
    assert world.wake("ev9").value.woken


def taken_and_completed(world: Any, old: Old) -> None:
    assert isinstance(world.finish(again(world, old), old.entry, old.step), Value)


def taken_ended_and_retried(world: Any, old: Old) -> None:
    assert isinstance(world.finish(again(world, old), old.entry, old.step, status="error", error=b"{}"), Value)
    world.resume("retry")
    entry = world.take_one()
    assert isinstance(world.begin(entry, kind="retry", nonce="n3", holder="host2/second"), Value)


def deleted(world: Any, old: Old) -> None:
    world.do(executions.delete(world.keys, "e", "why", force=True, tombstone_ttl_ms=TTL))


def saved_from_outside(world: Any, old: Old) -> None:
    from plaita.storage import RedisExecutionStorage

    world.raw("DEL", world.keys.lease("e"))
    storage = RedisExecutionStorage(world.server.url)
    try:
        state = storage.load_execution_state("e")
        assert state is not None
        storage.save_execution_state("e", state)
    finally:
        storage.close()


HISTORIES = (
    taken, taken_and_lost, taken_and_advanced, taken_and_left, taken_and_postponed, taken_and_suspended,
    taken_suspended_and_woken, taken_and_completed, taken_ended_and_retried, deleted, saved_from_outside,
)  # fmt: skip
SINCE = {one.__name__: one for one in HISTORIES}


# -- what the old holder tries ----------------------------------------------------------------------------------------


def verbs(world: Any, old: Old) -> dict[str, Callable[[], Call[Any]]]:
    keys, token, entry_id = world.keys, old.begun.token, old.entry.entry_id
    beat = Beat(old.step, old.node, b'{"beat":1}')
    return {
        "renew": lambda: leases.renew(
            keys, "host1", [Renewal("default", "e", old.begun.lease_value, old.entry.stream, entry_id, beat)], TTL
        ),
        "note signalled": lambda: leases.note_signalled(keys, [("default", "e", token)]),
        "count a failure": lambda: failures.count_failure(keys, CountFailure("e", token, old.step, old.node)),
        "commit": lambda: executions.commit(
            keys,
            executions.Commit("e", token, old.step, TTL, old.begun.lease_value, old.node, b'"late"', b"{}", "z"),
        ),
        "suspend": lambda: executions.suspend(
            keys,
            executions.Suspend(
                "e", token, old.step, old.node, b'"late"', b"{}", "go", "", None, TTL, [("payload", b"t")],
                old.entry.stream, entry_id,
            ),
        ),
        "postpone": lambda: executions.postpone(
            keys,
            Postpone("e", token, old.step, 0, "late", [("payload", b"c")], old.entry.stream, entry_id, True),
        ),
        "finish": lambda: executions.finish(
            keys, executions.Finish("e", token, old.step, "completed", old.entry.stream, entry_id, TTL)
        ),
        "end in error": lambda: executions.finish(
            keys, executions.Finish("e", token, old.step, "error", old.entry.stream, entry_id, TTL, error=b"{}")
        ),
        "delete": lambda: executions.delete(keys, "e", "late", force=True, tombstone_ttl_ms=TTL, token=token),
        "retake": lambda: executions.retake(
            keys, Retake("e", token, "host1/first", "late", TTL, old.entry.stream, entry_id, b"{}", 5)
        ),
        "hand on": lambda: executions.hand_on(keys, HandOn("e", token, old.entry.stream, entry_id, "host1")),
    }  # fmt: skip


def of_the_execution(world: Any) -> list[str]:
    """Every key that is there of it, or that holds something of it."""
    found = (key.decode() for key in world.raw("KEYS", "*"))
    return sorted(key for key in found if ":execution:" in key or ":delayed" in key or ":start-dedup:" in key)


def restored(world: Any, backup: dict[str, bytes], names: tuple[str, ...]) -> None:
    for name in names:
        world.raw("RESTORE", name, 0, backup[name], "REPLACE")


def whole_right(world: Any) -> set[str]:
    return {world.keys.fence("e"), world.keys.fencegen("e")}


def cases(world: Any, when: str, since: str) -> Iterator[tuple[Old, tuple[str, ...]]]:
    number = 1
    while True:
        world.raw("FLUSHALL", "SYNC")
        world.put_flow()
        old = WHEN[when](world)
        backup = {key: world.raw("DUMP", key) for key in of_the_execution(world)}
        pairs = (pair for pair in combinations(backup, 2) if set(pair) != whole_right(world))
        choices = [*((name,) for name in backup), *pairs]
        SINCE[since](world, old)
        restored(world, backup, choices[number - 1])
        yield old, choices[number - 1]
        number += 1
        if number > len(choices):
            return


def is_refused(answer: Any) -> bool:
    return isinstance(answer, Refused) or answer in (Value(["lost"]), Value(["fenced"]), Value(0))


def without(dumps: dict[bytes, bytes], *names: str) -> dict[bytes, bytes]:
    return {key: dump for key, dump in dumps.items() if key.decode() not in names}


@pytest.mark.parametrize("since", SINCE)
@pytest.mark.parametrize("when", WHEN)
def test_L2_single_keys_and_pairs_of_a_backup_give_no_right(world: Any, when: str, since: str) -> None:
    wrong = []
    keys = world.keys
    for old, names in cases(world, when, since):
        before = world.everything()
        for verb, call in verbs(world, old).items():
            if (verb, since) == ("delete", "deleted"):
                continue  # may be done by anybody, any number of times
            answer = world.run(call())
            after = world.everything()
            # handing on lets go of its own lease, where that is there, and of its carrier
            its_own = (keys.lease("e"), keys.queue, keys.wake) if verb == "hand on" else ()
            if without(after, *its_own) != without(before, *its_own):
                wrong.append((verb, names, "changed"))
            elif verb != "hand on" and not is_refused(answer):
                wrong.append((verb, names, answer))
            if after != before and verb != "hand on":
                break
            before = after
    assert wrong == []


@pytest.mark.parametrize("leased", [False, True])
def test_L2_with_the_whole_right_of_a_backup_one_hand_writes_and_not_two(world: Any, leased: bool) -> None:
    old = begun_only(world)
    dumps = {name: world.raw("DUMP", name) for name in whole_right(world)}
    newer = again(world, old)
    if not leased:
        world.raw("DEL", world.keys.lease("e"))
    restored(world, dumps, tuple(dumps))
    answers = [world.commit(begun, 1, "a", "b") for begun in (old.begun, newer)]
    assert [isinstance(answer, Value) for answer in answers] == [not leased, False]
    assert world.row().get("step", b"0") == (b"0" if leased else b"1")


def test_L2_begin_sent_again_with_a_lease_of_a_backup_may_write_nothing(world: Any) -> None:
    """It is answered as it was the first time; what it then does is refused."""
    old = begun_only(world)
    dump = world.raw("DUMP", world.keys.lease("e"))
    newer = again(world, old)
    restored(world, {world.keys.lease("e"): dump}, (world.keys.lease("e"),))
    world.begin(old.entry)
    for answer in (world.commit(old.begun), world.finish(old.begun, old.entry), world.suspend(old.begun, old.entry)):
        assert answer == Refused("fence", newer.token)

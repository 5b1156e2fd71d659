"""The pool's bookkeeping with plain data: orders of events that real processes show once in a thousand spawns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plaita.ipc.frames import encode
from plaita.ipc.messages import Answer, Hello, Step
from plaita.ipc.polled import FrameChannel
from plaita.ipc.template_socket import Spawned
from plaita.policy.slot import Slot
from plaita.supervisor.executor import Died, Executor
from plaita.supervisor.pool import Pool, PoolSettings
from plaita.supervisor.stats import Stats
from plaita.unix.oom import OomKills
from plaita.unix.reaper import Exit


class _Template:
    can_spawn = False

    def adopt(self, pid: int, pidfd: int) -> None:
        return

    def forget(self, pid: int) -> None:
        return


def _pool(max_steps: int | None = None, max_rss_mib: int | None = None) -> tuple[Pool, Executor]:
    settings = PoolSettings(size=1, kill_grace_s=60.0, max_steps=max_steps, max_rss_mib=max_rss_mib)
    template = _Template()
    pool = Pool(asyncio.get_running_loop(), settings, template, Stats(), lambda: None, lambda: None)  # type: ignore[arg-type]
    executor = Executor(slot=0, seq=1, template=template)  # type: ignore[arg-type]
    pool.executors.append(executor)
    return pool, executor


def _child() -> int:
    return os.posix_spawn("/bin/sleep", ["sleep", "100"], {}, setpgroup=0)


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _hello(pid: int) -> Hello:
    return Hello(pid=pid, generation=1, slot=0, python="3", started_ms=0)


def test_a_hello_may_come_before_the_template_has_told_the_pid() -> None:
    async def main() -> None:
        pool, executor = _pool()
        child = _child()
        try:
            pool.heard(executor, _hello(child).to_frame())
            assert executor.state is Slot.SPAWNING
            pool.births.spawned(Spawned(slot=0, seq=1, pid=child), os.pidfd_open(child))
            assert executor.state is Slot.IDLE
            asyncio.get_running_loop().remove_reader(executor.pidfd)  # type: ignore[arg-type]
        finally:
            _end(child)

    asyncio.run(main())


def test_a_hello_of_another_process_is_a_protocol_error() -> None:
    async def main() -> None:
        pool, executor = _pool()
        child = _child()
        try:
            pool.births.spawned(Spawned(slot=0, seq=1, pid=child), os.pidfd_open(child))
            pool.heard(executor, _hello(child + 1).to_frame())
            assert executor.state is Slot.KILLED
            asyncio.get_running_loop().remove_reader(executor.pidfd)  # type: ignore[arg-type]
        finally:
            _end(child)

    asyncio.run(main())


# -- a broken child is never used again ------------------------------------------------------------------


async def _standing(pool: Pool, executor: Executor, child: int) -> socket.socket:
    """It has said hello and is idle; the executor's end of its pipe."""
    ours, theirs = socket.socketpair()
    executor.channel = FrameChannel(
        asyncio.get_running_loop(),
        ours,
        lambda frame: pool.heard(executor, frame),
        lambda reason: pool.pipe_closed(executor, reason),
    )
    await executor.channel.open()
    pool.births.spawned(Spawned(slot=0, seq=1, pid=child), os.pidfd_open(child))
    theirs.sendall(_bytes(_hello(child)))
    await _until(lambda: executor.state is Slot.IDLE)
    return theirs


def _bytes(message: Hello | Answer) -> bytes:
    return b"".join(bytes(part) for part in encode(message.to_frame()))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def _answer(seq: int) -> Answer:
    return Answer(seq=seq, kind="advanced", node_id="a", next_node="b", started_ms=1, ended_ms=2)


def _step(pool: Pool) -> Step:
    return Step(pool.next_run_seq(), "e", "a", 1, 1, 1, None, None, None)


BROKEN: dict[str, tuple[bytes, bool, bool, str]] = {
    # what it writes, whether it then closes its pipe, whether a step is under way, what is said of it
    "an answer to another step": (_bytes(_answer(7)), False, True, "protocol error: an answer to step 7"),
    "an answer that nobody waits for": (_bytes(_answer(1)), False, False, "protocol error: an answer to step 1"),
    "half a frame": (_bytes(_answer(1))[:9], True, True, "closed its pipe"),
    "junk": (b"\x00junk junk junk" * 64, False, True, "protocol error"),
    "a closed pipe in a step": (b"", True, True, "closed its pipe"),
    "a closed pipe between steps": (b"", True, False, "closed its pipe"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_executor_is_never_used_again(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written, closes, in_a_step, words = BROKEN[how]
    monkeypatch.setattr("plaita.supervisor.pool.CLOSED_S", 0.05)

    async def main() -> None:
        pool, executor = _pool()
        child = _child()
        try:
            theirs = await _standing(pool, executor, child)
            taken = pool.try_acquire("t")
            assert taken is executor
            outcome = pool.run(executor, _step(pool)) if in_a_step else None
            theirs.sendall(written)
            if closes:
                theirs.close()
                await _until(lambda: executor.channel is not None and executor.channel.closed)
                pool.release(executor)
                assert pool.try_acquire("t") is None, "it must be nobody's from the first moment on"
            await _until(lambda: executor.state is Slot.KILLED)
            assert executor.kill_detail.startswith(words)
            pool.release(executor)
            assert pool.try_acquire("t") is None
            _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - SIGKILL was sent
            assert os.WTERMSIG(status) == signal.SIGKILL
            pool.exited(Exit(child, None, signal.SIGKILL, 0))
            assert pool.executors[0].state is Slot.GONE
            assert [death.cause for death in pool.deaths] == [executor.kill_detail]
            if outcome is not None:
                died = await outcome
                assert isinstance(died, Died)
                assert died.cause == executor.kill_detail
        except BaseException:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                _end(child)
            raise

    asyncio.run(main())


@pytest.mark.parametrize(
    ("limits", "used_mib", "why"),
    [
        ({}, 5_000, None),
        ({"max_steps": 2}, 0, None),
        ({"max_steps": 1}, 0, "max steps"),
        ({"max_rss_mib": 100}, 100, None),
        ({"max_rss_mib": 100}, 101, "memory"),  # what a step has left behind is not the next one's fault
        ({"retire": "threads"}, 0, "threads"),
    ],
)
def test_who_leaves_after_an_answer(
    limits: dict[str, Any], used_mib: int, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    retire, limits = limits.get("retire"), {name: limit for name, limit in limits.items() if name != "retire"}
    monkeypatch.setattr("plaita.supervisor.pool.rss_kib", lambda pid: used_mib * 1024)

    async def main() -> None:
        pool, executor = _pool(**limits)
        reasons: list[str] = []
        leave = pool.retire
        monkeypatch.setattr(pool, "retire", lambda executor, reason: (reasons.append(reason), leave(executor, reason)))
        child = _child()
        try:
            theirs = await _standing(pool, executor, child)
            assert pool.try_acquire("t") is executor
            future = pool.run(executor, _step(pool))
            theirs.sendall(_bytes(replace(_answer(1), retire=retire)))
            assert isinstance(await future, Answer), "the step that was answered is not lost"
            pool.release(executor)
            assert reasons == ([] if why is None else [why])
            assert (pool.try_acquire("t") is None) is (why is not None)
        finally:
            executor.cancel_deadline()
            _end(child)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("struck", "by_us", "wanted"),
    [
        (True, "", "SIGKILL (probably out of memory)"),
        (False, "", "SIGKILL"),
        (True, "protocol error", "protocol error"),  # whoever else was struck: this one was killed by us
    ],
)
def test_KT55_a_step_that_the_kernel_killed_for_memory_is_told_so(
    struck: bool, by_us: str, wanted: str, tmp_path: Path
) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom_kill 1\n")

    async def main() -> None:
        pool, executor = _pool()
        pool.oom = OomKills([str(counter)])
        child = _child()
        try:
            await _standing(pool, executor, child)
            assert pool.try_acquire("t") is executor
            outcome = pool.run(executor, _step(pool))
            if by_us:
                pool.kill(executor, by_us)
            if struck:
                counter.write_text("oom_kill 2\n")
        finally:
            _end(child)
        pool.exited(Exit(child, None, signal.SIGKILL, max_rss_kib=2048))
        died = await outcome
        assert isinstance(died, Died)
        assert died.cause == wanted
        assert died.exit.signal == signal.SIGKILL
        assert [death.cause for death in pool.deaths] == [wanted]

    asyncio.run(main())

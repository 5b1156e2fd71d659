"""The pool's bookkeeping with plain data: orders of events that real processes show once in a thousand spawns."""

from __future__ import annotations

import asyncio
import os
import signal

from plaita.ipc.messages import Hello
from plaita.ipc.template_socket import Spawned
from plaita.policy.slot import Slot
from plaita.supervisor.executor import Executor
from plaita.supervisor.pool import Pool, PoolSettings
from plaita.supervisor.stats import Stats


class _Template:
    can_spawn = False

    def adopt(self, pid: int, pidfd: int) -> None:
        return

    def forget(self, pid: int) -> None:
        return


def _pool() -> tuple[Pool, Executor]:
    settings = PoolSettings(size=1, kill_grace_s=1.0, max_steps=None, max_rss_mib=None)
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

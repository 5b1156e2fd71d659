from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from plaita.unix.reaper import Exit, has_children, reap, reap_all, unknown_exit

Child = Callable[[Callable[[], object]], int]


def until_reaped(pids: set[int]) -> dict[int, Exit]:
    found: dict[int, Exit] = {}
    deadline = time.monotonic() + 20
    while not pids <= set(found):
        assert time.monotonic() < deadline
        found.update({one.pid: one for one in reap_all()})
        time.sleep(0.001)
    return found


def test_codes_and_signals(child: Child) -> None:
    def killed() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.SIGQUIT)

    code, signalled = child(lambda: os._exit(3)), child(killed)
    clean, real_time = child(lambda: os._exit(0)), child(lambda: os.kill(os.getpid(), signal.SIGRTMIN + 3))
    ended = until_reaped({code, signalled, clean, real_time})
    assert (ended[code].code, ended[code].signal, ended[code].clean) == (3, None, False)
    assert (ended[signalled].code, ended[signalled].signal) == (None, signal.SIGQUIT)
    assert ended[clean].clean
    assert ended[clean].max_rss_kib > 100
    assert [ended[pid].describe() for pid in (code, signalled, clean)] == [
        "exit code 3",
        "killed by SIGQUIT",
        "exit code 0",
    ]
    assert ended[real_time].describe() == f"killed by signal {signal.SIGRTMIN + 3}"


def test_fifty_that_die_in_one_go_are_all_noticed() -> None:
    """Trouble 50: signals merge, a reaper that loops does not care."""
    group = subprocess.Popen(["sleep", "600"], process_group=0)
    others = [subprocess.Popen(["sleep", "600"], process_group=group.pid).pid for _ in range(49)]
    os.killpg(group.pid, signal.SIGKILL)
    ended = until_reaped({group.pid, *others})
    assert all(one.signal == signal.SIGKILL for one in ended.values())
    group.returncode = -9


def test_a_status_somebody_else_took_is_a_failure(child: Child) -> None:
    pid = child(lambda: os._exit(0))
    os.waitpid(pid, 0)
    assert reap(pid) == unknown_exit(pid)
    assert not unknown_exit(pid).clean
    assert unknown_exit(pid).describe() == "ended, how is unknown"


def test_reap_one_leaves_the_others(child: Child) -> None:
    first, second = child(lambda: os._exit(1)), child(lambda: time.sleep(600))
    assert reap(second) is None
    while (ended := reap(first)) is None:
        time.sleep(0.001)
    assert ended.code == 1
    assert has_children()


def test_no_children() -> None:
    script = (
        "import os\nfrom plaita.unix.reaper import *\n"
        "assert not has_children() and reap_all() == []\n"
        "pid = os.fork()\n"
        "if pid == 0: os._exit(5)\n"
        "assert has_children()\nos.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\n"
        "assert has_children()\nassert [one.code for one in reap_all()] == [5] and not has_children()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

from plaita.clock import boot_ms
from plaita.unix import prctl


def in_a_fresh_process(script: str) -> str:
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return answer.stdout.strip()


def test_flags_of_this_process() -> None:
    script = (
        "import signal\nfrom plaita.unix import prctl\n"
        "before = (prctl.get_child_subreaper(), prctl.get_pdeathsig(), prctl.get_dumpable())\n"
        "prctl.set_child_subreaper(); prctl.set_pdeathsig(signal.SIGKILL); prctl.set_dumpable(False)\n"
        "print(before, prctl.get_child_subreaper(), prctl.get_pdeathsig(), prctl.get_dumpable())"
    )
    assert in_a_fresh_process(script) == f"(False, 0, 1) True {int(signal.SIGKILL)} 0"


def test_orphans_come_to_a_subreaper() -> None:
    script = (
        "import os, time\nfrom plaita.unix import prctl\nprctl.set_child_subreaper()\n"
        "middle = os.fork()\n"
        "if middle == 0:\n    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\n"
        "os.waitpid(middle, 0)\n"
        "from plaita.unix.processes import children_of\n"
        "orphans = children_of(os.getpid())\nos.kill(orphans[0], 9)\nprint(len(orphans), os.waitpid(-1, 0)[1])"
    )
    assert in_a_fresh_process(script) == "1 9"


def test_boot_timer() -> None:
    timer = prctl.BootTimer()
    poller = select.poll()
    poller.register(timer.fileno(), select.POLLIN)
    assert poller.poll(0) == []
    wanted = boot_ms() + 30
    timer.arm(wanted)
    assert poller.poll(20_000)
    assert boot_ms() >= wanted
    timer.arm(None)
    assert poller.poll(0) == []
    timer.arm(boot_ms() - 5000)
    assert poller.poll(20_000)
    timer.arm(boot_ms() + 600_000)
    assert poller.poll(0) == []
    assert not os.get_inheritable(timer.fileno())
    timer.close()
    timer.close()


def test_title_leaves_the_tree_mark_readable() -> None:
    """Without room in the arguments and SPT_NOENV a title is written over the environment that the sweep reads."""
    from plaita.ipc.template_socket import template_argv, template_environment

    script = (
        "import os, sys, time\nfrom plaita.unix.title import set_title\n"
        "set_title('plaita: executor 0  ' + 'x' * 100)\nprint('set', flush=True)\ntime.sleep(600)"
    )
    argv = [sys.executable, "-c", script, *template_argv(1)[3:]]
    process = subprocess.Popen(argv, env=template_environment("the-mark"), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"set\n"
    from plaita.unix.processes import tree_mark

    with open(f"/proc/{process.pid}/cmdline", "rb") as file:
        assert file.read().rstrip(b"\0 ") == b"plaita: executor 0  " + b"x" * 100
    assert tree_mark(process.pid) == "the-mark"
    process.kill()
    process.wait()
    process.stdout.close()


def test_parent_death_signal_comes() -> None:
    script = (
        "import os, signal, time\nfrom plaita.unix import prctl\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    prctl.set_pdeathsig(signal.SIGKILL)\n    print(os.getpid(), flush=True)\n    time.sleep(600)\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    pidfd = os.pidfd_open(grandchild)
    process.kill()
    process.wait()
    assert select.select([pidfd], [], [], 20)[0]
    os.close(pidfd)
    process.stdout.close()
    time.sleep(0)

"""Trouble 56: a process with no descriptor left can still look at /proc and end a session."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import errno, os, resource, signal, subprocess, sys
from plaita.unix import processes, spare

child = subprocess.Popen(["setsid", "sh", "-c", "sleep 100 & echo x; sleep 100"], stdout=subprocess.PIPE)
child.stdout.readline()
if sys.argv[1] == "kept":
    spare.keep()
rss = processes.rss_kib(os.getpid())
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    assert error.errno == errno.EMFILE
seen = []
for look in (
    lambda: len(list(processes.pids())) > 1,
    lambda: processes.process_stat(child.pid) is not None,
    lambda: child.pid in processes.children_of(os.getpid()),
    lambda: len(processes.session_members(child.pid)) >= 2,
    lambda: processes.rss_kib(os.getpid()) is not None,
    lambda: processes.kill_session(child.pid) >= 1,
):
    for _ in range(3):  # what was given up is taken back each time
        try:
            seen.append(look())
        except OSError as error:
            seen.append(error.errno)
child.wait()
print(seen)
"""


def _seen(how: str) -> list[object]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, timeout=60, check=True)
    found: list[object] = eval(done.stdout)
    return found


def test_with_one_kept_back_everything_is_seen() -> None:
    assert _seen("kept") == [True] * 18


def test_without_it_the_group_is_killed_all_the_same() -> None:
    assert _seen("none") == [24] * 12 + [False] * 3 + [True] * 3

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from plaita.unix import processes

Child = Callable[[Callable[[], object]], int]


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def sleeping(mark: str | None = None) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if mark is not None:
        environment[processes.TREE_VARIABLE] = mark
    return subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)


def ended(process: subprocess.Popen[bytes]) -> int:
    return process.wait(timeout=20)


def test_stat_of_a_name_with_spaces_and_brackets(child: Child) -> None:
    from plaita.unix.prctl import set_name

    def named() -> None:
        set_name("a) b (c) 9")
        time.sleep(600)

    pid = child(named)
    until(lambda: getattr(processes.process_stat(pid), "name", "") == "a) b (c) 9", "the name is set")
    stat = processes.process_stat(pid)
    assert stat is not None
    assert (stat.pid, stat.parent, stat.session, stat.zombie) == (pid, os.getpid(), os.getsid(0), False)
    assert stat.start_ticks == processes.start_ticks(pid)
    assert pid in processes.children_of(os.getpid())
    os.kill(pid, signal.SIGKILL)
    until(lambda: getattr(processes.process_stat(pid), "zombie", False), "it is a zombie")
    os.waitpid(pid, 0)
    assert processes.process_stat(pid) is None
    assert processes.start_ticks(pid) is None


def test_pidfd_names_one_process(child: Child) -> None:
    pid = child(lambda: time.sleep(600))
    pidfd = processes.pidfd_open(pid)
    assert not os.get_inheritable(pidfd)
    assert not processes.pidfd_ended(pidfd)
    assert processes.pidfd_send_signal(pidfd, signal.SIGKILL)
    until(lambda: processes.pidfd_ended(pidfd), "it has ended")
    os.waitpid(pid, 0)
    assert processes.pidfd_ended(pidfd)
    assert not processes.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)


def test_kill_session_reaches_other_groups_of_the_session() -> None:
    script = (
        "import os,time,sys\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    os.setpgid(0, 0)\n    time.sleep(600)\n"
        "print(pid, flush=True)\ntime.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    until(lambda: processes.process_stat(grandchild).group == grandchild, "it has a group of its own")  # type: ignore[union-attr]
    assert sorted(processes.session_members(process.pid)) == sorted([process.pid, grandchild])
    assert processes.kill_session(process.pid) >= 2
    assert ended(process) == -signal.SIGKILL
    until(lambda: getattr(processes.process_stat(grandchild), "zombie", True), "the grandchild has ended")
    process.stdout.close()


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_kill_group_refuses_what_is_never_a_group_of_ours(pid: int) -> None:
    with pytest.raises(ValueError, match="never ours"):
        processes.kill_group(pid)


def test_sweep_kills_what_is_marked_and_nothing_else() -> None:
    mark = f"mark-{os.urandom(4).hex()}"
    ours = [sleeping(mark), sleeping(mark), sleeping(mark)]
    spared, stranger, prefix = sleeping(mark), sleeping(mark + "-other"), sleeping(None)
    wanted = {process.pid for process in ours}
    until(lambda: set(processes.find_marked(mark)) >= wanted | {spared.pid}, "all have begun")
    killed, left = processes.sweep(mark, spare=[spared.pid])
    assert (killed, left) == (3, [])
    assert [ended(process) for process in ours] == [-signal.SIGKILL] * 3
    assert processes.find_marked(mark) == {spared.pid: mark}
    assert stranger.poll() is None
    assert prefix.poll() is None
    for process in (spared, stranger, prefix):
        process.kill()
        ended(process)


def test_sweep_is_bounded_when_something_cannot_be_killed() -> None:
    mark = f"mark-{os.urandom(4).hex()}"
    process = sleeping(mark)
    until(lambda: processes.find_marked(mark), "it has begun")
    original = processes.send_signal
    processes.send_signal = lambda pid, number: False  # type: ignore[assignment]
    try:
        assert processes.sweep(mark, limit_ms=20) == (0, [process.pid])
    finally:
        processes.send_signal = original  # type: ignore[assignment]
        process.kill()
        ended(process)


def test_close_fds_except_keeps_exactly_those(child: Child) -> None:
    reading, writing = os.pipe()
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    for keep in ((writing,), (0, 1, 2, writing), (1, writing), (0, 2, writing)):

        def close_and_tell(keep: tuple[int, ...] = keep) -> None:
            processes.close_fds_except(keep)
            os.write(writing, repr(sorted(processes.open_descriptors())).encode() + b"\n")

        child(close_and_tell)
        assert os.read(reading, 1000).decode().strip() == repr(sorted(keep))
    for descriptor in (reading, writing, *others):
        os.close(descriptor)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), ()])
def test_ensure_std_fds_in_every_combination(closed: tuple[int, ...], tmp_path: object) -> None:
    path = f"{tmp_path}/answer"
    script = (
        "import os, socket, sys\n"
        "from plaita.unix.processes import ensure_std_fds, open_descriptors\n"
        "opened = ensure_std_fds()\n"
        "made = socket.socket()\n"
        "print('nobody reads this'); print('nor this', file=sys.stderr)\n"
        f"open({path!r}, 'w').write(repr((opened, made.fileno() > 2, [os.get_inheritable(n) for n in (0, 1, 2)],"
        " sys.stdin.read())))\n"
    )
    redirections = " ".join(f"{descriptor}{'<' if descriptor == 0 else '>'}&-" for descriptor in closed)
    subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirections}', sys.executable, script],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    with open(path) as file:
        assert file.read() == repr((list(closed), True, [True, True, True], ""))


def test_counting_threads_and_descriptors() -> None:
    import threading

    from plaita.unix.prctl import is_single_threaded

    gc.collect()  # what earlier tests left to the collector must not be closed in between
    threads, descriptors = processes.thread_count(), processes.descriptor_count()
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    opened = os.open(os.devnull, os.O_RDONLY)
    assert processes.thread_count() == threads + 1
    assert processes.descriptor_count() == descriptors + 1
    assert not is_single_threaded()
    assert processes.open_descriptors()[opened] == os.devnull
    os.close(opened)
    done.set()
    thread.join()


def test_single_threaded_process_is_recognised() -> None:
    script = "from plaita.unix.prctl import is_single_threaded; print(is_single_threaded())"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "True"


def test_memory_and_oom_score() -> None:
    assert (processes.rss_kib(os.getpid()) or 0) > 1000
    assert processes.oom_score_adj(os.getpid()) is not None
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert processes.rss_kib(process.pid) is None
    assert processes.oom_score_adj(process.pid) is None

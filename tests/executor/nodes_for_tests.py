"""Node code that behaves well, badly and worse: one node type ``try``, whose field ``do`` names what it does."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from plaita.nodes.base import EventNode, Node

random.random()
uuid.uuid1()

ACTIONS: dict[str, Callable[[Any, Any], Any]] = {}
LEFT: list[Any] = []


def action(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    ACTIONS[function.__name__] = function
    return function


class Try(Node):
    node_type = "try"
    node_name = "Try"
    do: str
    amount: int = 0
    path: str = ""

    def execute(self, execution: Any) -> Any:
        return ACTIONS[self.do](self, execution)


class Wait(EventNode):
    """Waits; ``do`` names what its second half does, ``first`` what its first does besides."""

    node_type = "wait"
    node_name = "Wait"
    event_type: str = "paid"
    do: str = "second_half"
    first: str = "value"
    amount: int = 0
    path: str = ""

    def execute(self, execution: Any) -> Any:
        return {**super().execute(execution), "first": ACTIONS[self.first](self, execution), "pid": os.getpid()}

    def on_event(self, execution: Any, event_data: Any) -> Any:
        return ACTIONS[self.do](self, execution)

    def on_timeout(self, execution: Any) -> Any:
        return ACTIONS[self.do](self, execution)

    def on_cancel(self, execution: Any) -> None:
        print(f"taken back: {execution.pending['event_id']}")
        ACTIONS[self.do](self, execution)


@action
def second_half(node: Any, execution: Any) -> Any:
    return {
        "woken": [execution.woken.kind, execution.woken.data],
        "pending": execution.pending,
        "count": execution.get_state("count"),
        "attempt": execution.attempt,
        "key": execution.idempotency_key,
    }


@action
def value(node: Try, execution: Any) -> Any:
    return node.amount


@action
def facts(node: Try, execution: Any) -> Any:
    return {
        "execution": execution.execution_id,
        "flow": execution.flow_id,
        "node": execution.node_id,
        "tenant": execution.tenant_id,
        "attempt": execution.attempt,
        "visit": execution.visit,
        "key": execution.idempotency_key,
        "results": execution.evaluate("$NODE"),
        "input": execution.evaluate("$INPUT"),
        "last": execution.evaluate("$LAST_NODE"),
    }


@action
def process(node: Try, execution: Any) -> Any:
    from plaita.unix.prctl import get_pdeathsig
    from plaita.unix.processes import oom_score_adj

    return {
        "fds": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
        "session": os.getsid(0),
        "parent": os.getppid(),
        "oom": oom_score_adj(os.getpid()),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "data": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "sigint": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "pdeathsig": get_pdeathsig(),
        "mark": os.environ.get("PLAITA_TREE"),
        "stdin": os.readlink("/proc/self/fd/0"),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": os.getgroups(),
        "threads": threading.active_count(),
    }


@action
def drawn(node: Try, execution: Any) -> Any:
    return [random.random(), str(uuid.uuid1()), str(uuid.uuid4())]


@action
def state(node: Try, execution: Any) -> Any:
    seen = execution.get_state("count", 0)
    execution.set_state("count", seen + 1)
    return seen


@action
def text(node: Try, execution: Any) -> Any:
    return "x" * node.amount


@action
def say(node: Try, execution: Any) -> Any:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    sys.stdout.write("without an end")
    return None


@action
def notes(node: Try, execution: Any) -> Any:
    for number in range(node.amount):
        execution.progress(f"note {number} \ud800")
    return None


# -- ends ---------------------------------------------------------------------------------------


@action
def os_exit(node: Try, execution: Any) -> Any:
    os._exit(3)


@action
def sys_exit(node: Try, execution: Any) -> Any:
    sys.exit("over")


@action
def interrupt(node: Try, execution: Any) -> Any:
    raise KeyboardInterrupt


@action
def generator_exit(node: Try, execution: Any) -> Any:
    raise GeneratorExit


@action
def base_exception(node: Try, execution: Any) -> Any:
    raise BaseException("base")


@action
def segfault(node: Try, execution: Any) -> Any:
    ctypes.string_at(0)


@action
def abort(node: Try, execution: Any) -> Any:
    os.abort()


@action
def kill_self(node: Try, execution: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@action
def fork_and_return(node: Try, execution: Any) -> Any:
    return "child" if os.fork() == 0 else "parent"


@action
def fork_and_raise(node: Try, execution: Any) -> Any:
    if os.fork() == 0:
        raise ValueError("in the child")
    return "parent"


@action
def fork_and_exit(node: Try, execution: Any) -> Any:
    if os.fork() == 0:
        sys.exit(0)
    return "parent"


@action
def allocate(node: Try, execution: Any) -> Any:
    LEFT.append(bytearray(node.amount << 20))
    return None


# -- stopping -------------------------------------------------------------------------------------


def _began(node: Try) -> None:
    if node.path:
        with open(node.path, "a") as file:
            file.write(f"{os.getpid()}\n")


@action
def sleep(node: Try, execution: Any) -> Any:
    _began(node)
    time.sleep(node.amount or 600)
    return "slept"


@action
def wait_for_file(node: Try, execution: Any) -> Any:
    while not os.path.exists(node.path):
        time.sleep(0.01)
    return "found"


@action
def ignore_stop(node: Try, execution: Any) -> Any:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _began(node)
    time.sleep(600)


@action
def swallow_stop(node: Try, execution: Any) -> Any:
    _began(node)
    try:
        time.sleep(600)
    except BaseException:
        return "as if nothing had been"


@action
def wait_for_cancel(node: Try, execution: Any) -> Any:
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(execution.cancel_event.wait(600)))
    thread.start()
    _began(node)
    try:
        execution.cancel_event.wait(600)
    finally:
        thread.join()
        with open(node.path + ".seen", "w") as file:
            file.write(str(seen))


# -- what is left behind --------------------------------------------------------------------------


@action
def leave_child(node: Try, execution: Any) -> Any:
    return subprocess.Popen(["sleep", "600"]).pid


@action
def leave_daemon(node: Try, execution: Any) -> Any:
    script = 'setsid sh -c \'echo $$ > "$0"; trap "" TERM; while :; do sleep 600; done\' "$0" &'
    subprocess.run(["sh", "-c", script, node.path], check=True)
    while True:
        if os.path.exists(node.path):
            with open(node.path) as file:
                if text := file.read().strip():
                    return int(text)
        time.sleep(0.002)


@action
def leave_daemon_and_sleep(node: Try, execution: Any) -> Any:
    leave_daemon(node, execution)
    time.sleep(600)


@action
def leave_thread(node: Try, execution: Any) -> Any:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


@action
def leave_descriptor(node: Try, execution: Any) -> Any:
    LEFT.append(os.open("/dev/null", os.O_RDONLY))


@action
def close_stdout(node: Try, execution: Any) -> Any:
    os.close(1)


@action
def close_stream(node: Try, execution: Any) -> Any:
    sys.stdout.close()


@action
def replace_frames(node: Try, execution: Any) -> Any:
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 3)
    os.close(null)


@action
def close_everything(node: Try, execution: Any) -> Any:
    os.closerange(0, 64)


@action
def junk_everywhere(node: Try, execution: Any) -> Any:
    for descriptor in range(64):
        try:
            os.write(descriptor, b"junk" * 100)
        except OSError:
            continue


@action
def flood(node: Try, execution: Any) -> Any:
    for _ in range(node.amount):
        sys.stdout.write("y" * 65535 + "\n")


@action
def change_limit(node: Try, execution: Any) -> Any:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))


@action
def change_modules(node: Try, execution: Any) -> Any:
    sys.modules["nodes_for_tests"] = sys.modules["os"]


@action
def reload_module(node: Try, execution: Any) -> Any:
    import importlib

    importlib.reload(sys.modules["nodes_for_tests"])


@action
def mess(node: Try, execution: Any) -> Any:
    os.chdir("/tmp")
    os.umask(0o777)
    os.environ["LEFT_BEHIND"] = "1"
    os.environ.pop("PATH", None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2})
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    sys.path.insert(0, "/nowhere")
    sys.setrecursionlimit(5000)
    sys.stdout = None


@action
def look(node: Try, execution: Any) -> Any:
    umask = os.umask(0)
    os.umask(umask)
    return {
        "cwd": os.getcwd(),
        "umask": umask,
        "left": os.environ.get("LEFT_BEHIND"),
        "path": "PATH" in os.environ,
        "term": getattr(signal.getsignal(signal.SIGTERM), "__qualname__", "changed"),
        "chld": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "syspath": "/nowhere" in sys.path,
        "recursion": sys.getrecursionlimit(),
        "stdout": sys.stdout is not None,
    }

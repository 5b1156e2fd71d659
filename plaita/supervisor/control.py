"""The control socket: one JSON object a line in, one out (CONTRACT "Socket protocol"). A slow, silent or rude client
harms nobody: every connection has a deadline, a line has a limit, and of too many connections the oldest that waits is
let go. A socket whose file somebody deleted is made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from plaita import jsontext
from plaita.errors import ConfigError
from plaita.supervisor import logs

LINE_MAX = 64 * 1024
IDLE_S = 10.0
MAX_CONNECTIONS = 64
BACKLOG = 256
WRITE_S = 5.0
MODE = 0o660
LOCK_S = 5.0
LOOK_S = 2.0
SAY_EVERY = 30  # looks

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def listen(path: str) -> socket.socket:
    """Bind ``path`` with mode 0660. A stale socket is replaced, a live one is not. Raises ConfigError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        folder = os.path.dirname(path) or "."
        os.makedirs(folder, mode=0o750, exist_ok=True)
        with _alone(folder):
            _make_room(path)
            # The file gets this mode, less the umask, as it is made: at no moment can others connect.
            os.fchmod(sock.fileno(), MODE)
            sock.bind(path)
            if stat.S_IMODE(os.lstat(path).st_mode) != MODE:
                os.chmod(path, MODE)  # what a stricter umask has taken away
            sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError([f"--socket {path!r}: {error.strerror or error}; give another with --socket"]) from None
    except ConfigError:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """One supervisor at a time looks and binds in this folder: of two that find the same stale socket, the second would
    remove the live one of the first. The lock goes with the process, and leaves no file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OSError(errno.EBUSY, f"somebody holds a lock on {folder!r}") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _make_room(path: str) -> None:
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
        except (TimeoutError, BlockingIOError):  # its queue of connections is full: somebody has it
            pass
        except OSError as error:
            raise ConfigError([f"--socket {path!r}: it cannot be probed ({error.strerror or error})"]) from None
    raise ConfigError([f"--socket {path!r}: a live supervisor listens there; stop it, or give another with --socket"])


def remove_socket(path: str, inode: tuple[int, int] | None) -> None:
    """Take the file away if it is still the one that was made."""
    if inode is not None and inode_of(path) == inode:
        with contextlib.suppress(OSError):
            os.unlink(path)


def inode_of(path: str) -> tuple[int, int] | None:
    """Device and inode of what is at ``path``."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class ControlServer:
    """``handlers`` by command. Only the socket this process made is removed at the end."""

    def __init__(self, sock: socket.socket, handlers: dict[str, Handler]) -> None:
        self._sock = sock
        self._path = str(sock.getsockname())
        self._inode = inode_of(self._path)
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._connections = 0
        self._waiting: dict[asyncio.StreamWriter, None] = {}  # for their client, the one that waits longest first

    async def start(self) -> None:
        """Serve, and look now and then whether the file is still there."""
        self._server = await self._listen_on(self._sock)
        self._keeping = asyncio.create_task(self._keep(), name="control socket")

    async def stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        if self._server is not None:
            self._server.close()
        remove_socket(self._path, self._inode)

    async def _listen_on(self, sock: socket.socket) -> asyncio.Server:
        return await asyncio.start_unix_server(self._serve, sock=sock, limit=LINE_MAX, backlog=BACKLOG)

    # -- the file ----------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """A file that a cleaner of temporary folders, or a person, has deleted is made again; what somebody else has
        put there is left alone, unless it is a socket that nobody listens on."""
        refused = 0
        while True:
            await asyncio.sleep(LOOK_S)
            if inode_of(self._path) == self._inode:
                refused = 0
                continue
            try:
                await self._again()
            except ConfigError as error:
                if refused % SAY_EVERY == 0:
                    logs.error("control.socket_gone", reason="; ".join(error.faults))
                refused += 1
            else:
                refused = 0
                logs.warning("control.socket_made_again", path=self._path)

    async def _again(self) -> None:
        sock = await asyncio.to_thread(listen, self._path)
        before, self._inode = self._server, inode_of(self._path)
        self._server = await self._listen_on(sock)
        if before is not None:
            before.close()  # nobody can find it any more; who is connected stays

    # -- connections -------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections > MAX_CONNECTIONS and not self._let_one_go():
                await self._answer(writer, {"ok": False, "error": "too many connections; try again"})
                return
            while True:
                self._waiting[writer] = None
                try:
                    line = await asyncio.wait_for(reader.readline(), IDLE_S)
                except ValueError:
                    await self._answer(writer, {"ok": False, "error": f"a line has at most {LINE_MAX} bytes"})
                    return
                if not line.endswith(b"\n"):
                    return
                self._waiting.pop(writer, None)
                answer = await self._handle(line)
                self._waiting[writer] = None
                await self._answer(writer, answer)
                self._waiting.pop(writer, None)
        except (TimeoutError, ConnectionError, asyncio.CancelledError):
            return  # cancelled at the end of the loop: streams of Python 3.11 would complain of a task that says so
        finally:
            self._connections -= 1
            self._waiting.pop(writer, None)
            writer.transport.abort()

    def _let_one_go(self) -> bool:
        """End the connection that waits longest for its client; False when each is being served."""
        for writer in self._waiting:
            del self._waiting[writer]
            writer.transport.abort()
            return True
        return False

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
        if writer.is_closing():  # the client went away meanwhile; uvloop would call writing a bug
            raise ConnectionResetError
        writer.write(jsontext.dumps(answer) + b"\n")
        await asyncio.wait_for(writer.drain(), WRITE_S)
        if writer.transport.get_write_buffer_size() > 0:
            # A client that does not read: give it the same time, then let go.
            deadline = asyncio.get_running_loop().time() + WRITE_S
            while writer.transport.get_write_buffer_size() > 0 and not writer.is_closing():
                if asyncio.get_running_loop().time() > deadline:
                    raise TimeoutError
                await asyncio.sleep(0.05)

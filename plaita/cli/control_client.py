"""The asking side of a supervisor's control socket: one JSON object a line each way (CONTRACT "Socket protocol").

Owns: finding the socket, time limits, and words for every way in which nobody answers. Must not: know what the
answers mean.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import socket
import time
from collections.abc import Mapping
from typing import Any

from plaita import jsontext
from plaita.errors import InputError, PlaitaError, RefusedError, UnreachableError
from plaita.runtime_config import user_socket

MAX_ANSWER_BYTES = 32 * 1024 * 1024
DEFAULT_TIMEOUT_SECONDS = 10.0
_MAX_PATH_BYTES = 107
_MAX_TIMEOUT_SECONDS = 86_400


class SilentError(UnreachableError):
    """Somebody is there and does not answer in time."""


def ask(path: str, command: str, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, **arguments: Any) -> dict[str, Any]:
    """Send one command, return the answer without its ``ok``.

    Raises UnreachableError when nobody listens and SilentError when nobody answers within ``timeout`` seconds in all,
    RefusedError when the supervisor says no, InputError for a path that can be no socket or a time that is none.
    """
    if not 0 < timeout <= _MAX_TIMEOUT_SECONDS:
        raise InputError(f"--timeout: {timeout:g} is not a number of seconds above 0 and up to {_MAX_TIMEOUT_SECONDS}")
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise InputError(
            f"socket: {path!r} has {len(os.fsencode(path))} bytes; a socket path has at most {_MAX_PATH_BYTES}"
        )
    deadline = time.monotonic() + timeout
    request = jsontext.dumps({"command": command, **arguments}) + b"\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        try:
            _connect(connection, path, deadline)
            connection.sendall(request)
            line = _read_line(connection, deadline)
        except TimeoutError:
            raise SilentError(f"socket {path}: no answer to {command!r} within {timeout:g} s") from None
        except OSError as error:
            raise UnreachableError(f"socket {path}: {_nobody(error)}") from None
    return _judge(line, path, command)


def _connect(connection: socket.socket, path: str, deadline: float) -> None:
    """Also to one whose queue of connections is full for a moment. Raises OSError."""
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            connection.connect(path)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError from None
            time.sleep(0.01)


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= MAX_ANSWER_BYTES:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        data = connection.recv(65536)
        if not data:
            break
        parts.append(data)
        size += len(data)
        if data.endswith(b"\n"):
            break
    return b"".join(parts)


def _nobody(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is none; no supervisor is running here, or it listens elsewhere (--socket, --instance)"
    if error.errno == errno.ECONNREFUSED:
        return "nobody listens; the supervisor is gone"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "this user may not connect; the socket is for its owner and group"
    return error.strerror or str(error)


def _judge(line: bytes, path: str, command: str) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        what = "the answer is too long" if len(line) > MAX_ANSWER_BYTES else "the connection ended without an answer"
        raise UnreachableError(f"socket {path}: {what} to {command!r}")
    try:
        answer = jsontext.loads(line)
    except jsontext.JSONTextError as error:
        raise PlaitaError(f"socket {path}: the answer to {command!r} is {error}") from None
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        raise PlaitaError(f"socket {path}: the answer to {command!r} is no answer of a supervisor")
    if not answer.pop("ok"):
        raise RefusedError("refused", str(answer.get("error") or f"{command} was refused without a reason"))
    return answer


# -- finding it -------------------------------------------------------------------------------------


def candidates(environ: Mapping[str, str]) -> list[str]:
    """Where a supervisor may listen when nobody says, most likely first (DECISIONS 37)."""
    given = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    found = [f"{given}/supervisor.sock"] if given else []
    found += ["/run/plaita/supervisor.sock", *sorted(glob.glob("/run/plaita-*/supervisor.sock")), user_socket(environ)]
    return list(dict.fromkeys(found))


def listening(path: str) -> bool:
    """Whether somebody accepts connections at ``path``, or we may not know (then yes: asking will say why)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(path)
        except OSError as error:
            return isinstance(error, TimeoutError) or error.errno in (errno.EACCES, errno.EPERM, errno.EAGAIN)
    return True


def _choice(path: str) -> str:
    """The flag that means this socket."""
    instance = re.fullmatch(r"/run/plaita-([^/]+)/supervisor\.sock", path)
    return f"--instance {instance[1]}" if instance else f"--socket {path}"


def find_socket(path: str | None, instance: str | None, environ: Mapping[str, str]) -> str:
    """The socket to ask: ``--socket``, ``--instance``, ``PLAITA_SOCKET``, or the only one that somebody listens on.

    Raises InputError when several do, or when a name could be none; a path that nobody listens on is returned, so that
    asking it says what is wrong.
    """
    if path is not None and instance is not None:
        raise InputError("--socket and --instance exclude each other; give one")
    if path is None and instance is None:
        path = environ.get("PLAITA_SOCKET") or None
    if path is not None:
        return os.path.abspath(os.path.expanduser(path))
    if instance is not None:
        if not instance or "/" in instance or "\0" in instance:
            raise InputError(f"--instance: {instance!r} is no name of an instance; it has no slash and is not empty")
        return f"/run/plaita-{instance}/supervisor.sock"
    possible = candidates(environ)
    live = [candidate for candidate in possible if listening(candidate)]
    if len(live) > 1:
        named = ", ".join(_choice(one) for one in live)
        raise InputError(f"several supervisors listen; choose one: {named}")
    return live[0] if live else possible[0]

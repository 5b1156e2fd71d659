"""Packets between supervisor and template, and how a template is started.

One packet is one message: a JSON object of at most 64 KiB, and descriptors beside it (SCM_RIGHTS). A SEQPACKET socket
keeps packets whole and ordered. Neither end ever waits here: BlockingIOError says that the socket is full or empty.
"""

from __future__ import annotations

import array
import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeAlias

import orjson

from plaita.errors import FrameError

PACKET_LIMIT = 64 * 1024
MAX_DESCRIPTORS = 8
TEMPLATE_FD = 3
EXIT_PRELOAD_FAILED = 78
TREE_VARIABLE = "PLAITA_TREE"
_TITLE_ROOM = 160

_PASSED_ON = frozenset(
    (
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
    )
)


# -- supervisor -> template -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spawn:
    """Fork an executor for ``slot``. Beside it: the executor's socket, the write ends of its stdout and stderr.

    ``seq`` comes back in the answer. ``rlimit_data_mib``: memory it may allocate (RLIMIT_DATA), None for no limit.
    ``temporary``: its own temporary folder, '' for none.
    """

    kind: ClassVar[str] = "spawn"
    slot: int
    seq: int
    tenant: str | None = None
    rlimit_data_mib: int | None = None
    temporary: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """The supervisor turns. ``kill_at_boot_ms``: when no later tick comes by then, every executor is to die."""

    kind: ClassVar[str] = "tick"
    kill_at_boot_ms: int | None


@dataclass(frozen=True, slots=True)
class Adopt:
    """An executor that another template forked. Beside it: its pidfd."""

    kind: ClassVar[str] = "adopt"
    pid: int


@dataclass(frozen=True, slots=True)
class Forget:
    """This executor is reaped: its pid may belong to a stranger soon."""

    kind: ClassVar[str] = "forget"
    pid: int


@dataclass(frozen=True, slots=True)
class Exit:
    """Leave without killing anybody: another template has taken over."""

    kind: ClassVar[str] = "exit"


# -- template -> supervisor -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Importing:
    """About to import a plug-in: names the culprit if the import takes the process down or never ends."""

    kind: ClassVar[str] = "importing"
    module: str


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything is imported. ``late_modules``: module -> why it is loaded in each executor after the fork instead."""

    kind: ClassVar[str] = "ready"
    generation: int
    pid: int
    node_types: list[str] = field(default_factory=list)
    late_modules: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spawned:
    """The executor asked for by ``seq`` exists; it says hello on its own socket. Beside it: its pidfd."""

    kind: ClassVar[str] = "spawned"
    slot: int
    seq: int
    pid: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """There is no executor for ``seq``; its socket is closed."""

    kind: ClassVar[str] = "spawn_failed"
    slot: int
    seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class Fatal:
    """The template cannot do its work and ends."""

    kind: ClassVar[str] = "fatal"
    reason: str


TemplateMessage: TypeAlias = Spawn | Tick | Adopt | Forget | Exit | Importing | Ready | Spawned | SpawnFailed | Fatal
_KINDS: dict[str, type[TemplateMessage]] = {
    message.kind: message
    for message in (Spawn, Tick, Adopt, Forget, Exit, Importing, Ready, Spawned, SpawnFailed, Fatal)
}
DESCRIPTORS: Mapping[type[TemplateMessage], int] = {Spawn: 3, Adopt: 1, Spawned: 1}
"""How many descriptors stand beside each message; 0 for those not named."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """(supervisor's end, template's end), both non-blocking and close-on-exec."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


def pack(message: TemplateMessage) -> bytes:
    """The packet of a message. Raises FrameError when it is over 64 KiB."""
    packet = orjson.dumps({"kind": message.kind, **asdict(message)})
    if len(packet) > PACKET_LIMIT:
        raise FrameError(f"a {message.kind} packet of {len(packet)} bytes; the limit is {PACKET_LIMIT}")
    return packet


def unpack(packet: bytes) -> TemplateMessage:
    """The message of a packet. Raises FrameError."""
    try:
        value: Any = orjson.loads(packet)
        kind = value.pop("kind")
        return _KINDS[kind](**value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FrameError(f"a packet that is no template message: {packet[:80]!r}") from error


def send(sock: socket.socket, message: TemplateMessage, descriptors: Sequence[int] = ()) -> None:
    """Send one message; the caller keeps (and closes) its descriptors. Raises BlockingIOError, FrameError, OSError."""
    ancillary = []
    if descriptors:
        ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors)))
    sock.sendmsg([pack(message)], ancillary, socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> tuple[TemplateMessage, list[int]] | None:
    """(message, its descriptors, close-on-exec), or None when the other end has closed.

    Raises BlockingIOError when nothing waits, FrameError for what is no message (its descriptors are closed). Fewer
    descriptors than the message should have mean that this process has none left: the caller checks the number.
    """
    space = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
    packet, ancillary, _flags, _address = sock.recvmsg(PACKET_LIMIT + 1, space, socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
            descriptors.extend(numbers)
    if not packet and not descriptors:
        return None
    try:
        return unpack(packet), descriptors
    except FrameError:
        close_all(descriptors)
        raise


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors that came with a message and are not wanted."""
    for descriptor in descriptors:
        os.close(descriptor)


# -- starting a template --------------------------------------------------------------------------


def template_argv(
    generation: int, preload: Sequence[str] = (), user: str | None = None, temporary: str = ""
) -> list[str]:
    """The command of a template. The last argument only makes room: the kernel keeps a process's title in the memory
    of its arguments, and the memory after them holds the environment with the tree mark, which must stay readable."""
    argv = [sys.executable, "-m", "plaita.executor.template", "--generation", str(generation)]
    for module in preload:
        argv += ["--preload", module]
    if user is not None:
        argv += ["--user", user]
    if temporary:
        argv += ["--temporary", temporary]
    return [*argv, "--title-room", "." * _TITLE_ROOM]


def template_environment(
    mark: str,
    *,
    base: Mapping[str, str] | None = None,
    allowed: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a template and all below it (DECISIONS 34): an allow-list of ``base`` (os.environ), the
    names in ``allowed``, LC_*, then ``extra``, and the tree mark. Nothing with a credential is in the list."""
    source = os.environ if base is None else base
    names = _PASSED_ON.union(allowed)
    environment = {name: value for name, value in source.items() if name in names or name.startswith("LC_")}
    environment.update(extra or {})
    environment[TREE_VARIABLE] = mark
    environment["SPT_NOENV"] = "1"  # setproctitle: leave the environment's memory alone, see template_argv
    return environment

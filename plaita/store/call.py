"""What a call to Redis is, and what can come back: the sans-I/O half of the store.

A verb (``executions.commit`` and its neighbours) only builds a ``Call``; a runner sends it and returns an
``Answer``. Nothing here opens a socket, sleeps, or knows which runner is used.

    Value        the server did it, here is the result
    Refused      the server understood and did nothing (``reason`` is a stable word)
    Unknown      sent, no answer: it may or may not have happened. Send an idempotent call again.
    Unavailable  certainly not done: not sent, or the server said that it cannot serve now
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, Generic, Literal, TypeVar

from plaita.errors import RefusedError, UnreachableError

T = TypeVar("T")

Lane = Literal["reader", "writer", "keeper", "bulk", "events"]
Argument = str | bytes | int
LANES: tuple[Lane, ...] = ("reader", "writer", "keeper", "bulk", "events")

BULK_BYTES = 256 * 1024  # bodies above this travel on a connection of their own (DECISIONS 16)

_INCLUDE = "-- include: "


# Value, Call and the records of a commit are not frozen: that makes them three times as cheap, on every step's way.
# Nobody changes one after it is made.


@dataclass(slots=True)
class Value(Generic[T]):
    """The call was done."""

    value: T


@dataclass(frozen=True, slots=True)
class Refused:
    """The call was understood and changed nothing. ``detail`` is what the script adds (a status, a lease value)."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The request was sent and its answer was lost."""

    error: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The request was not carried out. ``auth``: the server refuses our user or password, waiting will not help."""

    error: str
    auth: bool = False


Answer = Value[T] | Refused | Unknown | Unavailable


class Script:
    """One Lua script of the package with its includes resolved. Read on first use, then kept."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def text(self) -> str:
        return _resolve(_read(f"{self.name}.lua"), set())

    @cached_property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"Script({self.name!r})"


def _read(*path: str) -> str:
    return resources.files("plaita.store").joinpath("scripts", *path).read_text("utf-8")


def _resolve(text: str, seen: set[str]) -> str:
    """Replace each include line by its file, each file once, depth first."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith(_INCLUDE):
            lines.append(line)
            continue
        name = line.removeprefix(_INCLUDE).strip()
        if name not in seen:
            seen.add(name)
            lines.append(_resolve(_read("lib", f"{name}.lua"), seen))
    return "\n".join(lines)


@cache
def script(name: str) -> Script:
    """The script ``scripts/<name>.lua``."""
    return Script(name)


@dataclass(slots=True)
class Call(Generic[T]):
    """One request to Redis.

    ``script`` with ``keys`` and ``args``, or, without a script, the plain command ``args``.
    ``parse`` gets the reply (of a script: what follows its ``"ok"``) and returns the value.
    ``idempotent``: may be sent again after Unknown. ``refusals`` maps error codes of the server (``NOGROUP``) to the
    reason of a Refused. ``block_ms``: how long the server itself may wait before it answers.
    """

    name: str
    script: Script | None
    keys: Sequence[str]
    args: Sequence[Argument]
    lane: Lane
    idempotent: bool
    parse: Callable[[Any], T]
    block_ms: int = 0
    refusals: Mapping[str, str] | None = None

    def command(self, *, with_text: bool = False) -> tuple[Argument, ...]:
        """The words to send; ``with_text`` sends a script's text where its sha was not known."""
        if self.script is None:
            return tuple(self.args)
        if with_text:
            return ("EVAL", self.script.text, len(self.keys), *self.keys, *self.args)
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args)


def lane_for(*bodies: bytes | None) -> Lane:
    """``bulk`` when the bodies are large together, else ``writer``: a big one must not delay the small ones."""
    return "bulk" if sum(len(body) for body in bodies if body) > BULK_BYTES else "writer"


def text(raw: bytes | str | int | None) -> str:
    """A reply as text; bytes that are no UTF-8 survive as surrogates, None is the empty text."""
    if isinstance(raw, bytes):
        return raw.decode("utf-8", "surrogateescape")
    return "" if raw is None else str(raw)


def pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    """``[k1, v1, k2, v2]`` as pairs."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def expect(answer: Answer[T]) -> T:
    """The value of an answer. Raises RefusedError for Refused, UnreachableError for Unknown and Unavailable."""
    if isinstance(answer, Value):
        return answer.value
    if isinstance(answer, Refused):
        raise RefusedError(answer.reason, f"{answer.reason}: {answer.detail}" if answer.detail else answer.reason)
    raise UnreachableError(answer.error)


def load_scripts() -> int:
    """Read every script of the package now; how many. For a process that lives long: later its files may be another
    release's, or it may have no descriptor left to read them with."""
    names = [path.name for path in resources.files("plaita.store").joinpath("scripts").iterdir()]
    wanted = [script(name.removesuffix(".lua")).sha for name in names if name.endswith(".lua")]
    return len(wanted)

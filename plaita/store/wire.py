"""Speaking to a Redis server without I/O: the greeting, what a reply means, when to try again.

Both runners are thin around this module. Where a server is: ``endpoint``, and ``sentinel`` where sentinels know it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import hiredis

from plaita.policy.backoff import backoff_s as capped_backoff_s
from plaita.store.call import Answer, Argument, Call, Refused, Unavailable, Unknown, Value, text
from plaita.store.endpoint import Endpoint

T = TypeVar("T")

BACKOFF_BASE_S = 0.05
BACKOFF_CAP_S = 1.0

# Error codes after which this connection is of no use: the next one resolves the name again and greets anew.
_DROP = frozenset(
    {"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "WRONGPASS", "UNBLOCKED", "MOVED", "ASK"}
)
_KEEP = frozenset({"BUSY", "OOM", "NOREPLICAS", "MISCONF", "TRYAGAIN"})
_AUTH = frozenset({"NOAUTH", "WRONGPASS"})
_INSIDE_SCRIPT = re.compile(r"@user_script: ?\d+: ?-?([A-Z]{2,})\b")


# -- greeting ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who answered. ``client_id`` is what CLIENT UNBLOCK takes."""

    client_id: int
    server: str


class GreetingError(Exception):
    """The server answered and does not serve us; ``answer`` is what to give the callers."""

    def __init__(self, answer: Unavailable) -> None:
        super().__init__(answer.error)
        self.answer = answer


def greeting(endpoint: Endpoint, client_name: str) -> list[Call[Any]]:
    """What to send first, all at once: log in by RESP 2, take the database, see that it serves."""
    hello: list[Argument] = ["HELLO", 2]
    if endpoint.logs_in:
        hello += ("AUTH", endpoint.username or "default", endpoint.password)
    hello += ("SETNAME", client_name)
    commands: list[Sequence[Argument]] = [hello]
    if endpoint.db:
        commands.append(("SELECT", endpoint.db))
    commands.append(("PING",))
    return [Call("connect", None, (), command, "writer", True, lambda reply: reply) for command in commands]


def read_greeting(endpoint: Endpoint, answers: Sequence[Answer[Any]]) -> Greeting:
    """Raises GreetingError unless all of the greeting was answered well, by a primary."""
    for answer in answers:
        if isinstance(answer, Value):
            continue
        error = answer.detail if isinstance(answer, Refused) else answer.error
        auth = isinstance(answer, Unavailable) and answer.auth
        if "DB index is out of range" in error:
            error, auth = f"the server has no database {endpoint.db} (see its setting databases)", True
        raise GreetingError(Unavailable(f"{endpoint.shown}: {error}", auth=auth))
    first = answers[0]
    assert isinstance(first, Value)
    try:
        facts = {text(name): value for name, value in zip(first.value[::2], first.value[1::2], strict=True)}
        client_id = int(facts.get("id", 0))
    except (TypeError, ValueError):
        raise GreetingError(Unavailable(f"{endpoint.shown}: not the greeting of a Redis server")) from None
    if facts.get("mode") == b"sentinel":
        hint = "it is a sentinel, which keeps no data: write redis+sentinel://host:port/service"
        raise GreetingError(Unavailable(f"{endpoint.shown}: {hint}", auth=True))
    role = text(facts.get("role", b"master"))
    if role != "master":
        raise GreetingError(Unavailable(f"{endpoint.shown}: READONLY, the server is a {role}"))
    server = f"{text(facts.get('server', b'redis'))} {text(facts.get('version', b''))}".strip()
    return Greeting(client_id, server)


# -- words and replies ------------------------------------------------------------------------------


def pack(call: Call[Any], *, with_text: bool = False) -> bytes:
    """The bytes of a call. Raises UnicodeEncodeError for a text that UTF-8 cannot carry."""
    packed: bytes = hiredis.pack_command(call.command(with_text=with_text))  # type: ignore[arg-type]
    return packed


def is_unknown_script(reply: object) -> bool:
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT")


def is_denied(error: str) -> bool:
    """The user lacks a right for the command, or for one inside the script."""
    return "NOPERM" in error or "ACL failure in script" in error


def understand(call: Call[T], reply: Any) -> tuple[Answer[T], bool]:
    """What a reply means, and whether the connection it came on should not be used again."""
    if isinstance(reply, hiredis.ReplyError):
        return _understand_error(call, str(reply))
    try:
        if call.script is None:
            return Value(call.parse(reply)), False
        if reply[0] == b"ok":
            return Value(call.parse(reply[1:])), False
        if reply[0] != b"refused":
            return Unknown(f"{call.name}: the reply begins with {reply[0]!r}"), False
        return Refused(text(reply[1]), text(reply[2]) if len(reply) > 2 else ""), False
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        # done, but by a server or a script that is not the one we know: the caller must not take it for a refusal
        return Unknown(f"{call.name}: the reply cannot be read ({type(error).__name__}: {error})"), False


def _understand_error(call: Call[Any], error: str) -> tuple[Answer[Any], bool]:
    code = error.partition(" ")[0]
    if code == "ERR":
        inside = _INSIDE_SCRIPT.search(error)  # before Redis 7 the script's error code stands inside
        code = inside.group(1) if inside else code
    if call.refusals and code in call.refusals:
        return Refused(call.refusals[code], error), False
    if code == "WRONGTYPE":
        return Refused("wrong_type", error), False
    if code in _DROP or "max number of clients" in error:
        return Unavailable(error, auth=code in _AUTH), True
    if is_denied(error):
        said = f"{call.name}: NOPERM {error.removeprefix(code).strip()}"
        # inside a script other commands may have been carried out before this one
        half_done = "@user_script" in error or "in script" in error
        return (Unknown(said) if half_done else Unavailable(said, auth=True)), False
    if code in _KEEP:
        return Unavailable(error, auth=code in _AUTH), False
    return Refused("server_error", error), False


# -- when -------------------------------------------------------------------------------------------


def backoff_s(failures: int, chance: float, *, base: float = BACKOFF_BASE_S, cap: float = BACKOFF_CAP_S) -> float:
    """Seconds to wait after so many failures in a row: doubling, capped, the upper half by ``chance`` (0 to 1).

    Defined for every number of failures: no power grows beyond the cap.
    """
    if failures <= 0:
        return 0.0
    return capped_backoff_s(failures - 1, base=base, cap=cap, jitter=min(1.0, max(0.0, chance)))

"""How an HTTP call to an execution that waits is answered, and what the node is told of it (DECISIONS 30). Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from plaita import jsontext
from plaita.callback_url import Place, name_of, task_id_of
from plaita.policy.event_index import DATA_STANDS_IN

MAX_BODY_BYTES = 64 * 1024
STANDS_IN = DATA_STANDS_IN + 2
"""Levels around a body: those around an event's data, and the body's place in that."""
EARLY_METHODS = frozenset(("POST", "PUT", "DELETE"))
"""Of a call that comes before its wait nobody can tell yet which method is wanted; a GET may be a link's preview."""

_SECRET_HEADERS = frozenset(("authorization", "cookie", "proxy-authorization", "x-signature"))


@dataclass(frozen=True, slots=True)
class Request:
    """Names of headers in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """``body`` is a JSON text."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def reply(status: int, said: Any, **headers: str) -> Reply:
    """A JSON answer that no cache keeps."""
    fixed = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, jsontext.dumps(said), {**fixed, **named})


def error(status: int, message: str, **headers: str) -> Reply:
    return reply(status, {"status": "error", "message": message}, **headers)


NOT_FOUND = error(404, "there is no such callback")
SECOND = error(409, "this callback was called already, or its time is over")
TOO_LARGE = error(413, f"the body has more than {MAX_BODY_BYTES} bytes")


# -- where the execution is -----------------------------------------------------------------------

Stage = Literal["early", "waiting", "over"]


def event_prefix(place: Place) -> str:
    """How ids of events begin that are calls of this place."""
    return f"http_callback_{name_of(place)}_"


def stage(place: Place, control: Mapping[str, str], timing: bytes | None) -> Stage:
    """Whether an execution waits at a place, will perhaps come to it, or has gone on. ``control``: of its row;
    ``timing``: the record of the node."""
    if control.get("status") in ("completed", "error", "cancelled"):
        return "over"
    if any(part.partition(":")[2].startswith(event_prefix(place)) for part in control.get("used_events", "").split()):
        return "over"
    at_it = control.get("status") == "suspended" and control.get("next_node") == place.node_id
    if at_it and control.get("wait") and control.get("wait_task", "").rpartition("\n")[2] == task_id_of(place):
        return "over" if control.get("woken") else "waiting"
    said = {} if timing is None else jsontext.loads(timing)
    visit, ended = said.get("visit", 0), said.get("ended_at") is not None
    return "over" if visit > place.visit or (visit == place.visit and (ended or at_it)) else "early"


# -- a call that came first -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EarlyCall:
    """A call that is kept until its wait begins. ``at_ms``: when it came."""

    place: Place
    request: Request
    at_ms: int

    def to_record(self) -> bytes:
        place, request = self.place, self.request
        return jsontext.dumps(
            {
                "place": [place.prefix, place.tenant, place.execution_id, place.node_id, place.visit],
                "request": [request.method, request.path, dict(request.headers), dict(request.query)],
                "body": base64.b64encode(request.body).decode("ascii"),
                "at": self.at_ms,
            }
        )

    @classmethod
    def of_record(cls, record: bytes) -> Self:
        """Raises ValueError for what ``to_record`` did not give."""
        try:
            said = jsontext.loads(record)
            method, path, headers, query = said["request"]
            request = Request(str(method), str(path), dict(headers), dict(query), base64.b64decode(said["body"]))
            prefix, tenant, execution_id, node_id, visit = said["place"]
            place = Place(str(prefix), str(tenant), str(execution_id), str(node_id), int(visit))
            return cls(place, request, int(said["at"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"no call that is kept ({type(error).__name__})") from None


def kept_name(place: Place) -> str:
    """Under what name a call that came first is kept."""
    return f"{place.tenant}:{name_of(place)}"


# -- the call -------------------------------------------------------------------------------------


def unreadable(request: Request) -> Reply | None:
    """Why a call can be for no wait at all; None where it may be."""
    if len(request.body) > MAX_BODY_BYTES:
        return TOO_LARGE
    try:
        jsontext.check({"headers": dict(request.headers), "query": dict(request.query)}, "call")
    except jsontext.JSONValueError as fault:
        return error(400, str(fault))
    return None


def refusal(config: Mapping[str, Any], request: Request) -> Reply | None:
    """Why a call does not end the wait with this ``service_config``; None where it does."""
    method = config["callback_config"]["method"]
    if request.method != method:
        return error(405, f"the method of this callback is {method}", Allow=method)
    auth = config["auth_config"]
    if auth["enabled"] and auth["token"] and not _authorized(auth, request):
        challenge = {"WWW_Authenticate": "Basic" if auth["type"] == "basic" else "Bearer"}
        return _own(config, 401, "the call is not authorized", **({} if auth["type"] == "signature" else challenge))
    try:
        body = read_body(request)
    except ValueError as fault:
        return _own(config, 400, str(fault))
    wanted = config["validation_config"]
    for name, value in wanted["headers"].items():
        if not _fits(value, request.headers.get(name.lower())):
            return _own(config, 400, f"header {name}: it is missing, or not what is wanted")
    inside = body if isinstance(body, dict) else {}
    for name, value in wanted["params"].items():
        if not _fits(value, request.query.get(name, inside.get(name))):
            return _own(config, 400, f"parameter {name}: it is missing, or not what is wanted")
    return None


def success(config: Mapping[str, Any]) -> Reply:
    return reply(200, config["response_config"]["success"])


def _own(config: Mapping[str, Any], status: int, message: str, **headers: str) -> Reply:
    """The author's answer; one that is an object without a message of its own is told the reason."""
    said = config["response_config"]["error"]
    return reply(status, {"message": message, **said} if isinstance(said, dict) else said, **headers)


def _authorized(auth: Mapping[str, Any], request: Request) -> bool:
    secret = str(auth["token"]).encode()
    if auth["type"] == "signature":
        given = request.headers.get("x-signature", "").removeprefix("sha256=").lower()
        return _same(hmac.new(secret, request.body, hashlib.sha256).hexdigest().encode(), given)
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != ("basic" if auth["type"] == "basic" else "bearer"):
        return False
    return _same(base64.b64encode(secret) if auth["type"] == "basic" else secret, given.strip())


def _same(wanted: bytes, given: str) -> bool:
    return hmac.compare_digest(wanted, given.encode("utf-8", "surrogateescape"))


def _fits(wanted: Any, given: Any) -> bool:
    if given is None:
        return False
    if wanted is None or wanted == given:
        return True
    return isinstance(given, str) and not isinstance(wanted, str) and jsontext.dumps(wanted) == given.encode()


def read_body(request: Request) -> Any:
    """The JSON value of a body that says it is one; else its text, base64 where it is none; null where it is empty.
    Raises ValueError."""
    if not request.body:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return jsontext.loads(request.body, within=STANDS_IN)
        except jsontext.JSONTextError as fault:
            raise ValueError(f"the body is no JSON: {fault}") from None
    try:
        return request.body.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(request.body).decode("ascii")


def event_data(config: Mapping[str, Any], tenant: str, request: Request, now_ms: int) -> dict[str, Any]:
    """What the node is told of a call; what authorized it is left out."""
    return {
        "trigger_type": "http_callback",
        "node_id": config["node_id"],
        "execution_id": config["execution_id"],
        "flow_id": config["flow_id"],
        "tenant_id": tenant,
        "timestamp": now_ms,
        "success": True,
        "callback_path": config["callback_config"]["path"],
        "request_data": {
            "method": request.method,
            "headers": {name: value for name, value in request.headers.items() if name not in _SECRET_HEADERS},
            "query": dict(request.query),
            "body": read_body(request),
        },
    }

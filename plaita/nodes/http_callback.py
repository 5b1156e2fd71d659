"""``http_callback``: waits for an HTTP call to a URL of this execution's own (FLOW-FORMAT 2.3, DECISIONS 30). Who takes
the call is ``services.callbacks``; the node says what is asked of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from plaita.callback_url import NO_SECRET, Place, task_id_of
from plaita.errors import NodeOutputError, ResumeError
from plaita.flow.durations import LONGEST_MS
from plaita.flow.expressions import Scope
from plaita.flow.model import Preparation
from plaita.flow.nearest import a_type, shown
from plaita.flow.waiting import Service, Subscription, earlier
from plaita.nodes.base import EventNode, completed, with_service
from plaita.nodes.execution import Execution, copied

MASKED = "***"
_METHODS = ("POST", "GET", "PUT", "DELETE")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]{1,200}){1,20}")
_EVALUATED = (
    "callback_timeout_minutes",
    "auth_token",
    "validate_headers",
    "validate_params",
    "success_response",
    "error_response",
)


class HttpCallbackNode(EventNode):
    """Waits for a call of ``callback_method`` to ``service_config.callback_config.full_url`` of its result. Whoever has
    the URL may call; with ``auth_token`` he also shows that he knows it: as a bearer token, as ``user:password``
    (``basic``), or by signing the body (``signature``: ``X-Signature``, the HMAC-SHA256 in hex).

    ``validate_headers`` and ``validate_params``: what must be there, null for any value; parameters are those of the
    query and of a JSON body. The result has the call in ``event_data.request_data``.
    """

    node_type: ClassVar[str] = "http_callback"
    node_name: ClassVar[str] = "HTTP callback"
    _awaited: ClassVar[str] = "call"

    event_type: str | None = "http_callback"
    callback_path: str | None = None
    callback_method: Literal["POST", "GET", "PUT", "DELETE"] = "POST"
    callback_timeout_minutes: Any = 60
    require_auth: bool = True
    auth_type: Literal["token", "basic", "signature"] = "token"
    auth_token: Any = Field(default=None, repr=False)
    validate_headers: Any = Field(default_factory=dict)
    validate_params: Any = Field(default_factory=dict)
    success_response: Any = Field(default_factory=lambda: {"status": "success"})
    error_response: Any = Field(default_factory=lambda: {"status": "error"})

    @field_validator("callback_method", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) and value.upper() in _METHODS else value

    @field_validator("callback_path")
    @classmethod
    def _legal_path(cls, value: str | None) -> str | None:
        if value is not None and not _PATH.fullmatch(value):
            raise ValueError(f"{shown(value)} is no path: write names with a / before each, such as /orders/paid")
        return value

    def prepare(self, preparation: Preparation) -> None:
        """Compile what may be an expression."""
        super().prepare(preparation)
        self._compile(preparation, _EVALUATED)
        checks: dict[str, Callable[[Any], object]] = {
            "callback_timeout_minutes": _minutes,
            "auth_token": lambda raw: raw is None or self._judged_token(raw),
            "validate_headers": lambda raw: _object("validate_headers", raw),
            "validate_params": lambda raw: _object("validate_params", raw),
        }
        self._judge_written(preparation, checks)
        if self.callback_method == "GET" and (self.auth_token is None or not self.require_auth):
            preparation.warn(
                "callback_method",
                "GET: whatever follows the URL ends the wait, also a mail gateway that looks at links; POST is for "
                "what people decide",
            )
        if self.require_auth and self.auth_type != "token" and self.auth_token is None:
            preparation.problem("auth_token", f"auth_type {self.auth_type!r} needs it")

    def execute(self, execution: Execution) -> Any:
        """Begin the wait. Raises RuntimeError where the platform has no secret to make URLs with."""
        scope = execution.scope
        key = execution.callback_key
        if key is None:
            raise RuntimeError(NO_SECRET)
        pending = super().execute(execution)
        pending["event_type"] = "http_callback"
        place = Place(
            self.callback_path or "", execution.tenant_id, execution.execution_id, execution.node_id, execution.visit
        )
        url = key.url(place)
        return with_service(
            self,
            pending,
            execution,
            task_id=task_id_of(place),
            visit=execution.visit,
            callback_config={
                "path": url[len(key.base) :],
                "method": self.callback_method,
                "timeout_minutes": _minutes(self._evaluated(self.callback_timeout_minutes, scope)),
                "full_url": url,
            },
            auth_config={
                "enabled": self.require_auth,
                "type": self.auth_type,
                "token": MASKED if self._auth_token(scope) else None,
            },
            validation_config={
                "headers": _object("validate_headers", self._evaluated(self.validate_headers, scope)),
                "params": _object("validate_params", self._evaluated(self.validate_params, scope)),
            },
            response_config={
                "success": self._evaluated(self.success_response, scope),
                "error": self._evaluated(self.error_response, scope),
            },
        )

    def on_event(self, execution: Execution, event_data: Any) -> Any:
        """The call. Raises ResumeError for what is none."""
        result = completed(execution.pending, event_data)
        data = result["event_data"]
        if not isinstance(data, dict) or data.get("trigger_type") != "http_callback":
            raise ResumeError(f"{shown(data)} is no call of a callback", node=execution.node_id)
        return result

    def _subscription(self, pending: Any, scope: Scope) -> Subscription:
        wanted = super()._subscription(pending, scope)
        config = copied(pending["service_config"])
        config["auth_config"]["token"] = self._auth_token(scope)
        minutes = config["callback_config"]["timeout_minutes"]
        return replace(
            wanted,
            timeout_ms=earlier(math.ceil(minutes * 60_000) or None, wanted.timeout_ms),
            service=Service(self.node_type, config["task_id"], config),
        )

    def _auth_token(self, scope: Scope) -> str | None:
        return self._judged_token(self._evaluated(self.auth_token, scope))

    def _judged_token(self, value: Any) -> str | None:
        """What it is stands in no message: it is a secret, or meant to be one."""
        if value is not None and not isinstance(value, str):
            raise NodeOutputError(f"auth_token gives {a_type(value)}; a text is wanted")
        if self.require_auth and not value and (self.auth_type != "token" or self.auth_token is not None):
            raise NodeOutputError("auth_token gives no text: it would let everybody in")
        if self.require_auth and self.auth_type == "basic" and ":" not in (value or ":"):
            raise NodeOutputError("auth_token gives a text without a colon; for basic user:password is wanted")
        return value or None


def _minutes(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_MS / 60_000:
        raise NodeOutputError(
            f"callback_timeout_minutes gives {shown(value)}: a number of minutes is wanted, 0 for no limit"
        )
    return value


def _object(field: str, value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise NodeOutputError(f"{field} gives {shown(value)}: an object of names and values is wanted")
    return value or {}

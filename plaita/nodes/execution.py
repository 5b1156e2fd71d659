"""What node code gets to see of its execution: :class:`Execution`, one object per attempt.

Owns no state: it reads the context of the step and writes ``set_state`` there. No connection, lease or credential can
be reached from it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

from plaita.callback_url import CallbackKey
from plaita.flow import expressions
from plaita.flow.basenode import BaseNode
from plaita.flow.context import Context
from plaita.flow.expressions import Scope
from plaita.flow.waiting import Woken

DEFAULT_NAMESPACE = "plaita"
DEFAULT_TENANT = "default"


def idempotency_key(namespace: str, execution_id: str, node_id: str, visit: int) -> str:
    """sha256 (hex) that is the same over all attempts of one visit of a node, and no other visit's (DECISIONS 22)."""
    parts = (namespace, execution_id, node_id, str(visit))
    # lengths in front: no two different quadruples give one text
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def copied(value: Any) -> Any:
    """A JSON value that shares no list or object with ``value``."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


class Execution:
    """The node's view of its execution.

    ``execution_id``, ``flow_id``, ``node_id``, ``tenant_id``: texts (``flow_id`` None for a flow without one).
    ``attempt``: 1 for the first, over all retries. ``visit``: 1 for the first time this node is reached in the
    execution. ``cancel_event``: set when the node should stop. ``scope``: what expressions see. ``callback_key``: makes
    the URLs of ``http_callback`` nodes of this execution; None where the platform has no secret for them.
    """

    __slots__ = (
        "_context",
        "_node",
        "_on_progress",
        "_state",
        "attempt",
        "callback_key",
        "cancel_event",
        "namespace",
        "scope",
        "tenant_id",
        "visit",
    )

    def __init__(
        self,
        node: BaseNode,
        context: Context,
        *,
        tenant_id: str = DEFAULT_TENANT,
        namespace: str = DEFAULT_NAMESPACE,
        attempt: int = 1,
        visit: int = 1,
        cancel_event: threading.Event | None = None,
        on_progress: Callable[[str], None] | None = None,
        callback_key: CallbackKey | None = None,
    ) -> None:
        self._node = node
        self._context = context
        self._state = context.step_state
        self._on_progress = on_progress
        self.scope: Scope = context.scope(context.now_ms)
        self.tenant_id = tenant_id
        self.namespace = namespace
        self.attempt = attempt
        self.visit = visit
        self.callback_key = callback_key
        self.cancel_event = cancel_event if cancel_event is not None else threading.Event()

    @property
    def execution_id(self) -> str:
        """The id of the execution."""
        return self._context.execution_id

    @property
    def flow_id(self) -> str | None:
        """The id of the flow, None if it has none."""
        return self._context.flow_id

    @property
    def node_id(self) -> str:
        """The id of the node that runs."""
        return self._node.id

    @property
    def pending(self) -> Any:
        """In ``on_event``, ``on_timeout`` and ``on_cancel``: what ``execute`` returned when the wait began, as a copy.
        None in ``execute``."""
        return None if self._context.woken is None else copied(self._context.results.get(self._node.id))

    @property
    def woken(self) -> Woken | None:
        """How the wait ended that this step goes on from; None in ``execute``."""
        return self._context.woken

    @property
    def idempotency_key(self) -> str:
        """64 hex digits for the other side of a call to recognise a repetition: stable for this execution, node and
        visit over all attempts and hosts."""
        return idempotency_key(self.namespace, self._context.execution_id, self._node.id, self.visit)

    def evaluate(self, value: Any) -> Any:
        """The JSON value of something the flow's author wrote (a field of the node). Never pass data: it would be read
        as expressions. Lists and objects are the caller's own. Raises ExpressionError."""
        compiled = self._node._compiled_of(value)
        result = compiled.evaluate(self.scope) if compiled is not None else expressions.evaluate(value, self.scope)
        return copied(result) if isinstance(result, (dict, list)) else result

    def get_state(self, key: str, default: Any = None) -> Any:
        """What a step of this execution stored under ``key``, else ``default``."""
        return copied(self._state.get(key, default))

    def set_state(self, key: str, value: Any) -> None:
        """Store a JSON value for later steps; it is kept when this step succeeds. Raises ValueError for what JSON
        cannot carry."""
        self._state.set(key, value)

    def get_global_variable(self, key: str, default: Any = None) -> Any:
        """A value of the flow's ``globalContext``, else ``default``."""
        return copied(self._context.global_context.get(key, default))

    def progress(self, note: object) -> None:
        """Tell who watches how far the node is. At most the text's first 8 KiB are passed on."""
        if self._on_progress is not None:
            self._on_progress(str(note)[:8192])

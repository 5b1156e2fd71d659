"""The state of one execution inside one process: what expressions see, and what node code stored.

Owns the results held so far and their size. It reads no clock and writes nowhere; who runs steps carries what changed
to the store. Not for several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plaita import jsontext
from plaita.flow.expressions import Scope
from plaita.flow.waiting import Woken

NO_INPUT: Any = object()
"""Not even null was given: ``$INPUT`` is an empty object."""


class StepState:
    """What node code stores with ``set_state``, seen by later steps. Changes belong to one step: they are kept when the
    step succeeds and dropped when it fails. A step that was given up writes to its own, forgotten, changes."""

    __slots__ = ("_committed", "changes")

    def __init__(self, committed: dict[str, Any]) -> None:
        self._committed = committed
        self.changes: dict[str, tuple[Any, bytes]] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """The newest value of a key (a copy of no one's), or ``default``."""
        changed = self.changes.get(key)
        return changed[0] if changed is not None else self._committed.get(key, default)

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value. Raises JSONValueError (a ValueError) naming what JSON cannot carry."""
        text = jsontext.dumps(value, f"state[{key!r}]")
        self.changes[key] = (jsontext.loads(text), text)


class Context:
    """Mutable state of one execution.

    ``input`` is the flow's input; ``results`` the node results by id; ``last_node`` and ``branch`` the last node done
    and the last chosen target. ``env`` holds only what the flow exposes. ``result_bytes`` is the size of all results as
    JSON text. Values given in are held, not copied, and must be JSON values.
    """

    __slots__ = (
        "_roots",
        "_sizes",
        "_state",
        "callback_url",
        "execution_id",
        "flow_id",
        "now_ms",
        "parent",
        "result_bytes",
        "results",
        "step_state",
        "woken",
    )

    def __init__(
        self,
        *,
        execution_id: str,
        flow_id: str | None = None,
        input: Any = NO_INPUT,
        global_context: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        parent: Scope | None = None,
        last_node: str | None = None,
        branch: str | None = None,
    ) -> None:
        self.execution_id = execution_id
        self.flow_id = flow_id
        self.parent = parent
        self.now_ms = 0
        """When the step under way began, epoch milliseconds; set by the engine."""
        self.woken: Woken | None = None
        """How the wait ended that the step under way goes on from; None for a step that runs ``execute``. Set by the
        engine."""
        self.callback_url: Callable[[str], str] | None = None
        """The URLs of callback nodes as the step under way sees them; set by who runs steps."""
        self.results: dict[str, Any] = {}
        self.result_bytes = 0
        self._sizes: dict[str, int] = {}
        self._state: dict[str, Any] = {}
        self.step_state = StepState(self._state)
        self._roots: dict[str, Any] = {
            "INPUT": {} if input is NO_INPUT else input,
            "NODE": self.results,
            "GLOBAL": {**(global_context or {}), "flow_id": flow_id},
            "ENV": dict(env or {}),
            "FLOW_ID": flow_id,
            "FLOW": flow_id,
            "LAST_NODE": last_node,
            "BRANCH": branch,
            "EXECUTION_ID": execution_id,
        }

    @property
    def input(self) -> Any:
        """The flow's input (``$INPUT``)."""
        return self._roots["INPUT"]

    @property
    def global_context(self) -> dict[str, Any]:
        """The flow's ``globalContext`` with ``flow_id`` added (``$GLOBAL``)."""
        variables: dict[str, Any] = self._roots["GLOBAL"]
        return variables

    @property
    def last_node(self) -> str | None:
        """The node done last (``$LAST_NODE``); None before the first."""
        value: str | None = self._roots["LAST_NODE"]
        return value

    @last_node.setter
    def last_node(self, value: str | None) -> None:
        self._roots["LAST_NODE"] = value

    @property
    def branch(self) -> str | None:
        """The target a branching node chose last (``$BRANCH``)."""
        value: str | None = self._roots["BRANCH"]
        return value

    @branch.setter
    def branch(self, value: str | None) -> None:
        self._roots["BRANCH"] = value

    def scope(self, now_ms: int) -> Scope:
        """What expressions see at ``now_ms`` (epoch milliseconds). Shares this context's values."""
        return Scope(self._roots, now_ms, self.parent, callback_url=self.callback_url)

    # -- results ------------------------------------------------------------------------------------

    def load_result(self, node_id: str, text: bytes) -> None:
        """Take a stored result (JSON text). Raises JSONTextError."""
        self.record(node_id, jsontext.loads(text), len(text))

    def size_with(self, node_id: str, size: int) -> int:
        """``result_bytes`` if ``node_id`` had a result of ``size`` bytes."""
        return self.result_bytes - self._sizes.get(node_id, 0) + size

    def record(self, node_id: str, result: Any, size: int) -> None:
        """Hold a result of ``size`` bytes of JSON text; an earlier one of the same node is replaced (DECISIONS 22)."""
        self.result_bytes = self.size_with(node_id, size)
        self._sizes[node_id] = size
        self.results[node_id] = result

    # -- state ----------------------------------------------------------------------------------------

    def load_state(self, key: str, text: bytes) -> None:
        """Take stored state (JSON text). Raises JSONTextError."""
        self._state[key] = jsontext.loads(text)

    def commit_state(self) -> dict[str, bytes]:
        """Keep what this step stored; its JSON texts by key."""
        if not self.step_state.changes:
            return {}
        changed: dict[str, bytes] = {}
        for key, (value, text) in self.step_state.changes.items():
            self._state[key] = value
            changed[key] = text
        self.step_state = StepState(self._state)
        return changed

    def discard_state(self) -> None:
        """Forget what this step stored."""
        self.step_state = StepState(self._state)

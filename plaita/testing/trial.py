"""One execution under the runner that skips time: how far it is, and what it waits for.

Owns its steps and its wait. What ends a wait and when is the runner's. What a step does, whom an event concerns, when
something is tried again and when an approval is decided is asked where supervisors ask it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from plaita import jsontext
from plaita.errors import CODE_CANCELLED, FlowCancelledException, FlowExecutionException
from plaita.flow.engine import Action
from plaita.flow.failure import error_info
from plaita.flow.model import FlowDefinition
from plaita.flow.outcome import Advanced, Ended, ErrorInfo, Failed, Outcome, Suspended
from plaita.local.run import LocalRun
from plaita.nodes.execution import copied
from plaita.policy import approval, event_index
from plaita.policy.event_index import Places
from plaita.policy.retry import Next, after_failure
from plaita.testing.services import callback_key

_log = logging.getLogger("plaita.testing")
MOST_NODES = 10
TERMINAL = frozenset(("completed", "error", "cancelled"))


@dataclass(frozen=True, slots=True)
class Waiting:
    """What an execution waits for at this moment. ``node_type``: ``event``, ``delay``, ``approval`` or a plug-in's.
    ``until`` None: for ever. Of an approval: its id, its title, and who could decide now."""

    execution_id: str
    node_id: str
    node_type: str
    event_type: str
    event_filter: dict[str, Any] | None
    correlation_id: str
    since: datetime
    until: datetime | None
    approval_id: str | None = None
    title: str | None = None
    undecided: tuple[str, ...] = ()


@dataclass(slots=True)
class Wait:
    """A wait under way. ``number`` tells it from the others of its execution. ``places``: where events find it; None
    where a service ends it: ``service`` names that, ``task_id`` the task, ``config`` tells what is wanted of it.
    ``decisions``: of an approval. Times are epoch ms of the runner's clock; ``since_order`` tells the events that came
    before it from those after, though both have one time."""

    number: int
    node_id: str
    since: int
    deadline: int | None
    event_type: str
    event_filter: dict[str, Any] | None
    correlation: str
    places: Places | None
    service: str
    task_id: str
    config: dict[str, Any]
    decisions: list[dict[str, Any]] = field(default_factory=list)
    since_order: int = 0


@dataclass(frozen=True, slots=True)
class Later:
    """The step failed and is tried again at ``at`` (epoch ms)."""

    at: int


class Trial:
    """An execution. ``status`` is that of ``plaita show``: ``running`` (it failed and is tried again later),
    ``suspended``, ``completed``, ``error``, ``cancelled``."""

    def __init__(
        self,
        flow: FlowDefinition,
        given: Any,
        execution_id: str,
        now_ms: Callable[[], int],
        *,
        max_deliveries: int,
        max_steps: int,
    ) -> None:
        self.flow = flow
        self.execution_id = execution_id
        self.status = "running"
        self.output: Any = None
        self.error: ErrorInfo | None = None
        self.warnings: list[str] = []
        self.visited: list[str] = []
        """The nodes whose steps succeeded, in order; one that waits stands twice: when it began to wait, and after."""
        self.created_ms = self.changed_ms = now_ms()
        self.wait: Wait | None = None
        self.used_events: set[str] = set()
        self.since_order = 0
        """Events that are told apart from its start by order, though both have one time."""
        self._now_ms = now_ms
        self._max_deliveries = max_deliveries
        self._max_steps = max_steps
        self._run = LocalRun(
            flow, given, execution_id=execution_id, now_ms=now_ms, callback_key=callback_key(execution_id)
        )
        self._failures: Counter[str] = Counter()
        self._retries = 0
        self._waits = 0
        self._again: tuple[Action, Any] = ("execute", None)

    def __repr__(self) -> str:
        where = f" at {self.wait.node_id!r}" if self.wait is not None else ""
        why = f": {self.error.message}" if self.error is not None else ""
        return f"<Trial {self.execution_id} {self.status}{where}{why}>"

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def results(self) -> dict[str, Any]:
        """A copy of all node results so far, by node id."""
        found: dict[str, Any] = copied(self._run.results)
        return found

    @property
    def lasted(self) -> timedelta:
        """From its start to its last step, by the runner's clock."""
        return timedelta(milliseconds=self.changed_ms - self.created_ms)

    @property
    def waiting(self) -> Waiting | None:
        """What it waits for; None when it does not wait."""
        wait = self.wait
        if wait is None:
            return None
        asked: dict[str, Any] = {}
        if wait.service == "approval":
            terms, said = approval.terms_of(wait.config), {one["approver_id"] for one in wait.decisions}
            who = approval.may_decide(terms, self._now_ms() - wait.since)
            asked = {
                "approval_id": wait.config["approval_id"],
                "title": wait.config["approval_config"]["title"],
                "undecided": tuple(name for name in who if name not in said),
            }
        return Waiting(
            execution_id=self.execution_id,
            node_id=wait.node_id,
            node_type=self.flow.plans[wait.node_id].type,
            event_type=wait.event_type,
            event_filter=copied(wait.event_filter),
            correlation_id=wait.correlation,
            since=moment(wait.since),
            until=None if wait.deadline is None else moment(wait.deadline),
            **asked,
        )

    def visits(self, node_id: str) -> int:
        """How often a node was begun."""
        return self._run.visits(node_id)

    @property
    def in_hand(self) -> str:
        """The node whose step is the next one, or is tried again."""
        return self._run.next_node

    # -- for the runner -------------------------------------------------------------------------------

    def go(self, action: Action = "execute", event: Any = None) -> Later | None:
        """Steps until it waits, has ended, or is tried again later. ``action``: how its wait has ended."""
        self._again = (action, event)
        return self.go_again()

    def go_again(self) -> Later | None:
        """The step that is due, and those after it. Raises FlowExecutionException where they do not end."""
        action, event = self._again
        for _ in range(self._max_steps):
            node_id = self._run.next_node
            self.wait = None
            self.status = "running"
            outcome = self._run.step(action, event, attempt=self._failures[node_id] + 1)
            self.changed_ms = self._now_ms()
            if isinstance(outcome, Failed):
                return self._failed(node_id, outcome)
            self._done(node_id, outcome)
            if not isinstance(outcome, Advanced):
                return None
            action, event = self._again = ("execute", None)
        raise FlowExecutionException(
            f"execution {self.execution_id} has taken {self._max_steps} steps without a wait: it goes round by "
            f"{self.round_by()}; TimeSkippingRunner(max_steps=...) allows more",
            node=self._run.next_node,
        )

    def round_by(self) -> str:
        """Where a flow that does not end goes: the nodes of its last steps."""
        last = list(dict.fromkeys(self.visited[-100:]))
        return ", ".join(map(repr, last[:MOST_NODES])) + (", ..." if len(last) > MOST_NODES else "")

    def cancel(self, reason: str) -> None:
        """End it; a node that waits undoes what it began."""
        node = self._run.next_node
        if self.wait is not None:
            outcome = self._run.step("cancelled")
            if isinstance(outcome, Failed):
                _log.warning("on_cancel of node %r: %s", outcome.node_id, outcome.error.message)
        self.wait, self.status, self.changed_ms = None, "cancelled", self._now_ms()
        text = f"FlowCancelledException: cancelled{f': {reason}' if reason else ''}"
        error = FlowCancelledException(text, code=CODE_CANCELLED, node=node)
        self.error = error_info(error, retryable=False)

    def stands_under(self, event_type: str, correlation: str | None, data: Any) -> bool:
        """Whether an event that comes now ends its wait."""
        if self.wait is None or self.wait.places is None:
            return False
        paths = event_index.paths_of(self.wait.places.key_set)
        digest = event_index.event_digest(event_type, correlation, paths, data)
        return digest is not None and digest in self.wait.places.digests

    def _failed(self, node_id: str, outcome: Failed) -> Later | None:
        self._failures[node_id] += 1
        self._retries += 1
        verdict = after_failure(
            retryable=outcome.error.retryable,
            node_failures=self._failures[node_id],
            total_retries=self._retries,
            max_deliveries=self._max_deliveries,
        )
        if verdict.next is Next.END:
            self.status, self.error = "error", outcome.error
            return None
        return Later(self._now_ms() + verdict.delay_ms)

    def _done(self, node_id: str, outcome: Outcome) -> None:
        self._failures[node_id] = 0
        self.visited.append(node_id)
        self.warnings.extend(getattr(outcome, "warnings", ()))
        if isinstance(outcome, Ended):
            self.status, self.output = "completed", copied(outcome.output)
        elif isinstance(outcome, Suspended):
            self.status, self.wait = "suspended", self._wait_of(outcome)

    def _wait_of(self, outcome: Suspended) -> Wait:
        """As ``supervisor.suspends`` makes it of an executor's answer."""
        wanted = jsontext.loads(jsontext.dumps(outcome.subscription))
        service, named = wanted.get("service"), wanted["correlation_id"]
        correlation = str(named or self.execution_id)
        places = event_index.places(
            wanted["event_type"], correlation, named=bool(named), event_filter=wanted["event_filter"]
        )
        now = self._now_ms()
        self._waits += 1
        return Wait(
            number=self._waits,
            node_id=outcome.node_id,
            since=now,
            deadline=None if wanted["timeout_ms"] is None else now + wanted["timeout_ms"],
            event_type=wanted["event_type"],
            event_filter=wanted["event_filter"],
            correlation=correlation,
            places=None if service else places,
            service=service["type"] if service else "",
            task_id=service["task_id"] if service else "",
            config=service["config"] if service else {},
        )


def moment(epoch_ms: int) -> datetime:
    """In UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)

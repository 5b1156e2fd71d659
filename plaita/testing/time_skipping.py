"""``TimeSkippingRunner``: flows that wait, tried in milliseconds. No server, no supervisor, no waiting.

The clock is the runner's: it stands while something can be done, and jumps to the next thing that is due when nothing
can. What differs from a supervisor otherwise is in ``docs/waiting.md``.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from types import TracebackType
from typing import Any, Self

from plaita import ids, jsontext
from plaita.client import approvals
from plaita.client import events as publishing
from plaita.client.events import PublishedEvent
from plaita.client.operations import Operation, check_execution_id, check_reason
from plaita.errors import FlowExecutionException, FlowWaitsError, InputError, RefusedError
from plaita.flow.model import BaseNode
from plaita.nodes.execution import DEFAULT_TENANT
from plaita.nodes.registry import NodeRegistry, get_default_registry
from plaita.policy import approval, callbacks, event_index
from plaita.policy.approval import Decision, NotTaken
from plaita.policy.callbacks import Reply
from plaita.policy.schedule import calendar
from plaita.store import events
from plaita.store.call import Value
from plaita.store.events import KEPT_AT_MOST, SEEN_MS, Published
from plaita.store.keys import Keys
from plaita.store.suspends import EVENTS_KEPT_MS
from plaita.testing import calls, services, telling
from plaita.testing.calls import Calls
from plaita.testing.given import AnyFlow, definition_of, input_of, span_ms
from plaita.testing.telling import Told
from plaita.testing.trial import Later, Trial, Wait, Waiting, moment

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
MOST_JUMPS = 10_000
MOST_STEPS = 10_000
MOST_TOLD = 100
TIMER, ACTION, SCHEDULE = range(3)
"""What is due, and in which order at one time: what is waited for, what the test planned, what starts new ones."""


class TimeSkippingRunner:
    """Runs flows in this process by a clock of its own.

        with TimeSkippingRunner(nodes=[MyNode]) as run:
            trial = run.start(flow, {"order": 7})         # to its end, or to where it waits
            run.advance(hours=25)
            run.approve("review", by="boss")
            assert trial.status == "completed"

            trial = run(flow, {"order": 8})               # to its end; waits are not waited for

    ``nodes``: node types of yours, besides those registered already. ``beginning``: what the clock says at first.
    ``max_deliveries``: how often in a row a node may fail before its execution ends in error. A flow that goes round
    never ends; that is said after ``max_jumps`` jumps in time of one call, or after ``max_steps`` steps between two
    waits. Not for several threads.
    """

    def __init__(
        self,
        nodes: Iterable[type[BaseNode]] = (),
        *,
        registry: NodeRegistry | None = None,
        beginning: datetime = BEGINNING,
        max_deliveries: int = 5,
        max_jumps: int = MOST_JUMPS,
        max_steps: int = MOST_STEPS,
    ) -> None:
        self._max_jumps = max_jumps
        self._max_steps = max_steps
        self._registry = (get_default_registry() if registry is None else registry).copy()
        for cls in nodes:
            self._registry.register(cls)
        self._now = int(beginning.timestamp() * 1000)
        self._max_deliveries = max_deliveries
        self._trials: dict[str, Trial] = {}
        self._calls = Calls(self._trials)
        # due at, TIMER, ACTION or SCHEDULE, in order; then what
        self._due: list[tuple[int, int, int, Callable[[], None]]] = []
        self._order = count()
        self._kept: dict[str, list[tuple[int, int, PublishedEvent, Any]]] = {}
        self._seen: dict[str, int] = {}
        self._told: deque[Told] = deque(maxlen=MOST_TOLD)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left behind: there is no process and no connection."""

    # -- executions -------------------------------------------------------------------------------------

    def __call__(self, flow: AnyFlow, input: Any = None, *, execution_id: str | None = None) -> Trial:
        """Start it and skip time until it has ended. Raises FlowWaitsError where nothing that is due would end its
        wait: start it with ``start`` then, and say what happens, or plan it with ``after``."""
        return self.finish(self.start(flow, input, execution_id=execution_id))

    def start(self, flow: AnyFlow, input: Any = None, *, execution_id: str | None = None) -> Trial:
        """Start it; it is at its end or waits when this returns. Raises FlowDefinitionError, InputError."""
        execution = ids.new_execution_id() if execution_id is None else check_execution_id(execution_id)
        if execution in self._trials:
            raise InputError(f"execution id: {execution!r} is there already")
        trial = Trial(
            definition_of(flow, self._registry),
            input_of(input),
            execution,
            lambda: self._now,
            max_deliveries=self._max_deliveries,
            max_steps=self._max_steps,
        )
        trial.since_order = next(self._order)
        self._trials[execution] = trial
        self._after_steps(trial, trial.go())
        return trial

    def finish(self, trial: Trial) -> Trial:
        """Skip time until it has ended. Raises FlowWaitsError as a call of the runner does."""
        for _ in range(self._max_jumps):
            if trial.ended:
                return trial
            if all(kind == SCHEDULE for _, kind, _, _ in self._due):  # starts of others, for ever
                raise self._stuck(trial)
            self._jump()
        if trial.wait is not None and trial.wait.deadline is None:  # what goes round is another
            raise self._stuck(trial)
        raise FlowExecutionException(
            f"execution {trial.execution_id} has not ended after {self._max_jumps} jumps in time, until "
            f"{self.now.isoformat()}: it goes round by {trial.round_by()}; "
            "TimeSkippingRunner(max_jumps=...) allows more"
        )

    def cancel(self, trial: Trial, reason: str = "") -> bool:
        """Cancel it; False when it has ended already."""
        said = check_reason(reason)
        if trial.ended:
            return False
        trial.cancel(said)
        return True

    # -- time ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """What the clock says, in UTC."""
        return moment(self._now)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let so much time pass: what becomes due meanwhile happens, each thing at its time."""
        until = self._now + span_ms(days, hours, minutes, seconds)
        for _ in range(self._max_jumps):
            if not self._due or self._due[0][0] > until:
                self._now = until
                return
            self._jump()
        raise FlowExecutionException(
            f"more than {self._max_jumps} things are due until {moment(until).isoformat()}; "
            "TimeSkippingRunner(max_jumps=...) allows more"
        )

    def after(
        self, action: Callable[[], object], *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Plan what happens later: ``run.after(lambda: run.approve("review", by="ann"), hours=5)``. What it raises is
        raised where time is skipped."""
        self._plan(self._now + span_ms(days, hours, minutes, seconds), lambda: (action(), None)[1], ACTION)

    def schedule(self, flow: AnyFlow, cron: str, input: Any = None, *, tz: str = "UTC") -> list[Trial]:
        """Start executions of a flow by the clock, as ``plaita schedule put`` makes hosts do, as time is skipped. The
        list has those started so far, the oldest first, and grows. Raises FlowDefinitionError, InputError."""
        definition, given = definition_of(flow, self._registry), input_of(input)
        due = calendar(cron, tz, self._now).after(self._now)
        started: list[Trial] = []

        def fire() -> None:
            started.append(self.start(definition, given))
            again()

        def again() -> None:
            at = next(due, None)
            if at is not None:
                self._plan(at, fire, SCHEDULE)

        again()
        return started

    # -- what happens ---------------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[Waiting]:
        """What is waited for now, by all executions, the oldest first."""
        return [trial.waiting for trial in self._trials.values() if trial.waiting is not None]

    def publish(
        self, event_type: str, data: Any = None, correlation_id: str | None = None, *, event_id: str | None = None
    ) -> PublishedEvent:
        """Publish an event, as ``Client.publish``: whoever waits for it goes on; one with a correlation is kept 7 days
        for executions that are there already and do not wait for it yet. Raises InputError."""
        asking = publishing.publish(Keys(), event_type, data, correlation_id=correlation_id, event_id=event_id)
        next(asking)  # what would be sent, with all that it is checked for
        before = event_id is not None and self._now - self._seen.get(event_id, -SEEN_MS) < SEEN_MS
        published = _answer(asking, Published("0-0", before))
        if before:
            return published
        self._seen[published.event_id] = self._now
        value = jsontext.loads(jsontext.dumps(data))
        self._told.append(Told(next(self._order), event_type, correlation_id, published.event_id, value))
        if correlation_id is not None:
            kept = self._kept.setdefault(event_index.kept_digest(event_type, correlation_id), [])
            kept.append((self._now, next(self._order), published, value))
            del kept[:-KEPT_AT_MOST]
        concerned = [trial for trial in self._trials.values() if trial.stands_under(event_type, correlation_id, value)]
        for trial in concerned:
            self._wake(trial, published.event_id, event_type, value)
        return published

    def call(
        self,
        callback: str,
        body: Any = None,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Reply:
        """An HTTP call to an ``http_callback`` node, by its id or its URL; ``status`` and ``body`` (JSON text) of the
        answer. ``body``: bytes and text as they are, any other value as JSON. One that comes before the wait is kept
        for it. Raises InputError for an id that is no such node's."""
        place = self._calls.place_of(callback)
        if place is None:
            return callbacks.NOT_FOUND
        request = services.request_of(callback, body, method, headers or {}, query or {})
        answer, data = self._calls.take(place, request, self._now)
        if data is not None:
            self._wake(self._trials[place.execution_id], calls.event_id(place), "http_callback", data)
        return answer

    def message(self, node: str, *messages: Any) -> None:
        """Messages for a ``redis_queue`` node that waits: bytes and text as they are, any other value as JSON; an
        object is the fields of a stream's entry. Raises RefusedError ``not_waiting``."""
        found = self._of_service("redis_queue", node)
        if not messages:
            raise InputError("messages: there is none")
        if found is None:
            there = self._nodes_with("redis_queue")
            raise RefusedError("not_waiting", f"no redis_queue node {node!r} waits{telling.instead(node, there)}")
        trial, wait = found
        data = services.heard(wait.config, messages, self._now)
        self._wake(trial, ids.new_execution_id(), "redis_message", data)

    def resume(self, trial: Trial, data: Any = None) -> bool:
        """End its wait by hand with what an event would bring, as ``plaita resume --type event``. False when it does
        not wait."""
        value = jsontext.loads(jsontext.dumps(data, "data"))
        if trial.wait is None:
            return False
        self._after_steps(trial, trial.go("event", value))
        return True

    def approve(
        self, approval: str, *, by: str, comment: str = "", form: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Decide for it as ``by``. ``approval``: its id, or the id of the node that waits. The answer, and what is
        raised (InputError, RefusedError), is that of ``Client.decide``."""
        return self._decide(approval, "approve", by, comment, form)

    def reject(
        self, approval: str, *, by: str, comment: str = "", form: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Decide against it, as ``approve``."""
        return self._decide(approval, "reject", by, comment, form)

    # -- within ---------------------------------------------------------------------------------------------

    def _plan(self, at: int, what: Callable[[], None], kind: int = TIMER) -> None:
        heapq.heappush(self._due, (at, kind, next(self._order), what))

    def _jump(self) -> None:
        """To the next thing that is due, which then happens."""
        at, _, _, what = heapq.heappop(self._due)
        self._now = max(self._now, at)
        what()

    def _after_steps(self, trial: Trial, later: Later | None) -> None:
        """What it does next, by itself."""
        if later is not None:
            self._plan(later.at, lambda: self._try_again(trial))
            return
        wait = trial.wait
        if wait is None:
            return
        wait.since_order = next(self._order)
        early, called = self._early(trial, wait), self._calls.early(trial, wait, self._now)
        if called is not None:
            self._wake(trial, calls.event_id(calls.place_of(wait)), "http_callback", called)
        elif early is not None:
            self._wake(trial, early[0].event_id, early[0].event_type, early[1])
        elif wait.deadline is not None:
            self._plan(wait.deadline, lambda: self._time_is_up(trial, wait.number))

    def _try_again(self, trial: Trial) -> None:
        if not trial.ended:
            self._after_steps(trial, trial.go_again())

    def _time_is_up(self, trial: Trial, number: int) -> None:
        if trial.wait is not None and trial.wait.number == number:
            self._after_steps(trial, trial.go("timeout"))

    def _early(self, trial: Trial, wait: Wait) -> tuple[PublishedEvent, Any] | None:
        """The event that came before this wait began and ends it (DECISIONS 27)."""
        if wait.places is None:
            return None
        for at, order, event, data in self._kept.get(event_index.kept_digest(wait.event_type, wait.correlation), ()):
            counts = order > trial.since_order and self._now - at < EVENTS_KEPT_MS
            if counts and event.event_id not in trial.used_events and event_index.matches(wait.event_filter, data):
                return event, data
        return None

    def _wake(self, trial: Trial, event_id: str, event_type: str, data: Any) -> None:
        trial.used_events.add(event_id)
        told = events.told(event_id, event_type, jsontext.dumps(data))
        self._after_steps(trial, trial.go("event", jsontext.loads(told)))

    def _decide(
        self, named: str, decision: Decision, by: str, comment: str, form: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        who, said = approvals.checked(by, comment)
        trial, wait = self._asked(named)
        config = wait.config
        try:
            taken = approval.taken(
                config, wait.decisions, who, decision, comment=said, form=form, since=wait.since, now=self._now
            )
        except NotTaken as why:
            raise approvals.refused(why.reason, config["approval_id"], who) from None
        wait.decisions = taken.details
        if taken.final is not None:
            told = approval.event_data(config, taken.final, taken.details, DEFAULT_TENANT, self._now)
            self._wake(trial, f"{config['approval_id']}:decided", approvals.EVENT_TYPE, told)
        return {
            "approval_id": config["approval_id"],
            "execution_id": trial.execution_id,
            "decision": decision,
            "settled": taken.final is not None,
            "final_decision": taken.final,
        }

    def _asked(self, named: str) -> tuple[Trial, Wait]:
        found = self._of_service("approval", named)
        if found is None:
            refused = approvals.refused("no_approval", named, "")
            raise RefusedError(refused.reason, f"{refused}{telling.instead(named, self._nodes_with('approval'))}")
        return found

    def _nodes_with(self, service: str) -> list[str]:
        """The nodes at which somebody waits for this service."""
        waits = (trial.wait for trial in self._trials.values())
        return sorted({wait.node_id for wait in waits if wait is not None and wait.service == service})

    def _of_service(self, service: str, named: str) -> tuple[Trial, Wait] | None:
        """Who waits for this service, by the id of its node or of its task. InputError where several do."""
        found = [
            (trial, trial.wait)
            for trial in self._trials.values()
            if trial.wait is not None
            and trial.wait.service == service
            and named in (trial.wait.node_id, trial.wait.task_id)
        ]
        if len(found) > 1:
            which = ", ".join(wait.task_id for _, wait in found[:5])
            raise InputError(f"{service}: several wait at node {named!r}; name one of {which}")
        return found[0] if found else None

    def _stuck(self, trial: Trial) -> FlowWaitsError:
        waiting = trial.waiting
        assert waiting is not None  # else it has ended, or something is due
        return FlowWaitsError(
            telling.stuck(trial, self._told),
            node=waiting.node_id,
            subscription={"event_type": waiting.event_type, "event_filter": waiting.event_filter},
        )


def _answer(asking: Operation[PublishedEvent], answer: Published) -> PublishedEvent:
    try:
        asking.send(Value(answer))
    except StopIteration as done:
        published: PublishedEvent = done.value
        return published
    raise AssertionError("publishing is one call")

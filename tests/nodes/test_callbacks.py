"""User callbacks (ledger F7, DECISIONS 25): who is told of what, and what cannot come of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import plaita
from plaita.errors import InputError
from plaita.flow.context import Context
from plaita.flow.engine import run_step
from plaita.flow.model import parse_flow
from plaita.flow.outcome import Advanced, Ended, ErrorInfo, Failed, StepStopped, Suspended
from plaita.nodes import callbacks as callbacks_module
from plaita.nodes.announcing import StepCallbacks, kinds_after, kinds_before
from plaita.nodes.base import Node, enter
from plaita.nodes.callbacks import (
    KINDS,
    CallbackEvent,
    Callbacks,
    FlowCallback,
    register_callback,
    registered_callbacks,
    report_to_stderr,
    unregister_callback,
)
from plaita.nodes.execution import Execution
from plaita.nodes.registry import NodeRegistry, load_preloads


class Recorder(FlowCallback):
    """Notes everything it is told."""

    def __init__(self) -> None:
        self.events: list[CallbackEvent] = []
        self.calls: list[str] = []

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def flush(self) -> None:
        self.calls.append("flush")

    def finalize(self) -> None:
        self.calls.append("finalize")


def _note(self: Recorder, event: CallbackEvent) -> None:
    self.events.append(event)
    self.calls.append(event.kind)


for kind in KINDS:
    setattr(Recorder, f"on_{kind}", _note)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Callbacks:
    """The callbacks of this process: none, and none left after the test."""
    fresh = Callbacks()
    monkeypatch.setattr(callbacks_module, "_registered", fresh)
    return fresh


class Fail(Node):
    node_type: ClassVar[str] = "fail"
    how: str = "value"

    def execute(self, execution: Execution) -> Any:
        raise {"value": ValueError("bad"), "runtime": RuntimeError("worse"), "stop": StepStopped()}[self.how]


class Drive:
    """Steps of one flow, each told to ``callbacks``."""

    def __init__(self, registry: NodeRegistry, node: dict[str, Any], callbacks: Callbacks) -> None:
        registry.register(Fail)
        nodes = [{"type": "start", "id": "s", "next": "n"}, {"id": "n", "next": "e", **node}]
        nodes.append({"type": "end", "id": "e", "output": "$NODE.n"})
        self.flow = parse_flow({"flow_id": "f", "version": "7", "nodes": nodes}, registry)
        self.context = Context(execution_id="x1", flow_id="f", input={"a": [1]})
        self.callbacks = callbacks
        self.reports: list[str] = []

    def step(self, node_id: str, action: Any = "execute", event: Any = None, **fields: Any) -> Any:
        told = StepCallbacks(
            self.callbacks,
            self.context,
            self.flow.plans[node_id],
            action=action,
            **{"tenant_id": "acme", "version": "7", "visit": 1, "attempt": 2, **fields},
            report=self.reports.append,
        )
        told.before(event)
        outcome = run_step(
            self.flow,
            self.context,
            node_id,
            call=lambda node: enter(node, Execution(node, self.context)),  # type: ignore[arg-type]
            now_ms=0,
            action=action,
            event=event,
        )
        told.after(outcome)
        return outcome


# -- who is told of what ------------------------------------------------------------------------------

BEFORE: list[tuple[Any, bool, tuple[str, ...]]] = [
    ("execute", True, ("flow_start", "node_start")),
    ("execute", False, ("node_start",)),
    ("event", True, ("flow_resume", "node_resume")),
    ("event", False, ("flow_resume", "node_resume")),
    ("timeout", False, ("flow_resume", "node_resume")),
    ("cancelled", False, ("flow_resume", "node_resume")),
    ("timed_out", True, ()),
    ("timed_out", False, ()),
]


@pytest.mark.parametrize(("action", "first", "kinds"), BEFORE)
def test_F7_before_a_step(action: Any, first: bool, kinds: tuple[str, ...]) -> None:
    assert kinds_before(action, first=first) == kinds


def failed(exception: str = "NodeExecutionError", *, retryable: bool = False) -> Failed:
    info = ErrorInfo(-500, "m", "node_error", "n", "n", exception, "ValueError", retryable)
    return Failed("n", info, 1, None)  # type: ignore[arg-type]


ADVANCED = Advanced("n", 1, "e", None, 1, b"1")
ENDED = Ended("e", 1, 1, 1, b"1", b"1")
SUSPENDED = Suspended("n", 1, {}, 1, b"1")
EXECUTING = ("execute", "event", "timeout", "timed_out")
AFTER: list[tuple[tuple[str, ...], Any, tuple[str, ...]]] = [
    (EXECUTING, ADVANCED, ("node_end",)),
    (EXECUTING, ENDED, ("node_end", "flow_end")),
    (("execute",), SUSPENDED, ("node_suspend", "flow_suspend")),
    (EXECUTING, failed(), ("node_end", "flow_end")),
    (EXECUTING, failed(retryable=True), ("node_end",)),
    (EXECUTING, failed("ResumeGuardError"), ("node_end",)),
    (("cancelled",), ADVANCED, ("node_end", "flow_end")),
    (("cancelled",), failed(), ("node_end", "flow_end")),
    (("cancelled",), failed(retryable=True), ("node_end", "flow_end")),
    (("cancelled",), failed("ResumeGuardError"), ("node_end",)),
]


@pytest.mark.parametrize(
    ("action", "outcome", "kinds"), [(each, outcome, kinds) for actions, outcome, kinds in AFTER for each in actions]
)
def test_F7_after_a_step(action: Any, outcome: Any, kinds: tuple[str, ...]) -> None:
    assert kinds_after(action, outcome) == kinds


def test_F7_every_step_of_an_execution_is_seen(registry: NodeRegistry, recorder: Recorder) -> None:
    drive = Drive(registry, {"type": "event", "event_type": "t", "name": "Wait"}, Callbacks([recorder]))
    drive.step("s")
    waits = drive.step("n")
    drive.step("n", "event", {"b": 2})
    drive.step("e")
    assert recorder.calls == [
        *("flow_start", "node_start", "node_end", "flush"),
        *("node_start", "node_suspend", "flow_suspend", "flush"),
        *("flow_resume", "node_resume", "node_end", "flush"),
        *("node_start", "node_end", "flow_end", "finalize", "flush"),
    ]
    by_kind = {(event.node_id, event.kind): event for event in recorder.events}
    assert by_kind["s", "flow_start"].input == {"a": [1]}
    suspended = by_kind["n", "flow_suspend"]
    assert (suspended.result, suspended.subscription) == (waits.result, waits.subscription)
    resumed = by_kind["n", "flow_resume"]
    assert (resumed.action, resumed.event_data) == ("event", {"b": 2})
    ended = by_kind["n", "node_end"]
    assert (ended.result["event_data"], ended.next_node, ended.error) == ({"b": 2}, "e", None)
    assert by_kind["e", "flow_end"].output["event_data"] == {"b": 2}
    for event in recorder.events:
        assert (event.execution_id, event.flow_id, event.version, event.tenant_id) == ("x1", "f", "7", "acme")
        assert (event.visit, event.attempt) == (1, 2)
        assert event.at_ms > 1_700_000_000_000
    assert (suspended.node_type, suspended.node_name) == ("event", "Wait")
    assert by_kind["e", "node_end"].node_name is None
    assert drive.reports == []


@pytest.mark.parametrize(("how", "kinds"), [("value", ["node_end", "flow_end"]), ("runtime", ["node_end"])])
def test_F7_a_failure_is_the_end_of_the_node_too(
    registry: NodeRegistry, recorder: Recorder, how: str, kinds: list[str]
) -> None:
    drive = Drive(registry, {"type": "fail", "how": how}, Callbacks([recorder]))
    drive.step("s")
    del recorder.events[:]
    outcome = drive.step("n")
    assert recorder.kinds == ["node_start", *kinds]
    assert {event.error for event in recorder.events[1:]} == {outcome.error}
    assert recorder.events[1].result is None


def test_F7_a_step_that_was_killed_ends_without_a_second_start(registry: NodeRegistry, recorder: Recorder) -> None:
    drive = Drive(registry, {"type": "mock", "timeoutHandler": {"strategy": "continue"}}, Callbacks([recorder]))
    drive.step("n", "timed_out")
    assert recorder.kinds == ["node_end"]
    assert recorder.events[0].action == "timed_out"


def test_F7_a_cancelled_wait_ends_the_flow_with_its_error(registry: NodeRegistry, recorder: Recorder) -> None:
    drive = Drive(registry, {"type": "event", "event_type": "t"}, Callbacks([recorder]))
    drive.step("n")
    del recorder.events[:]
    drive.step("n", "cancelled")
    assert recorder.kinds == ["flow_resume", "node_resume", "node_end", "flow_end"]
    for event in recorder.events[2:]:
        assert event.error is not None
        assert (event.error.code, event.error.exception) == (-4, "FlowCancelledException")


def test_what_callbacks_are_given_is_a_copy(registry: NodeRegistry) -> None:
    class Vandal(FlowCallback):
        def on_flow_start(self, event: CallbackEvent) -> None:
            event.input["a"].append(2)

        def on_node_end(self, event: CallbackEvent) -> None:
            if isinstance(event.result, dict):
                event.result["v"].clear()

    drive = Drive(registry, {"type": "mock", "value": {"v": [1]}}, Callbacks([Vandal()]))
    drive.step("s")
    outcome = drive.step("n")
    assert drive.context.input == {"a": [1]}
    assert outcome.result == drive.context.results["n"] == {"v": [1]}
    assert drive.reports == []


# -- what cannot come of it -------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit


RAISED = [ValueError("boom"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("b"), Unprintable()]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_F7_what_a_callback_raises_is_told_and_is_no_failure(
    registry: NodeRegistry, recorder: Recorder, error: BaseException
) -> None:
    class Bad(FlowCallback):
        def on_node_start(self, event: CallbackEvent) -> None:
            raise error

        def on_node_end(self, event: CallbackEvent) -> None:
            raise error

        def flush(self) -> None:
            raise error

    drive = Drive(registry, {"type": "mock", "value": 1}, Callbacks([Bad(), recorder]))
    assert drive.step("n").result == 1
    assert recorder.calls == ["flow_start", "node_start", "node_end", "flush"], "the others are told all the same"
    assert len(drive.reports) == 3
    first = drive.reports[0]
    assert first.startswith(f"callback {__name__}.{Bad.__qualname__}.on_node_start failed (execution x1, node n):\n")
    assert "Traceback" in first
    assert "raise error" in first
    assert type(error).__name__ in first


@pytest.mark.parametrize("error", [StepStopped(), BaseExceptionGroup("tasks", [ValueError(), StepStopped()])])
def test_a_request_to_stop_is_no_error_of_the_callback(registry: NodeRegistry, error: BaseException) -> None:
    class Stopped(FlowCallback):
        def on_node_start(self, event: CallbackEvent) -> None:
            raise error

    drive = Drive(registry, {"type": "mock"}, Callbacks([Stopped()]))
    with pytest.raises((StepStopped, BaseExceptionGroup)):
        drive.step("n")
    assert drive.reports == []


def test_what_passes_is_raised_at_once() -> None:
    class Interrupted(FlowCallback):
        def on_node_end(self, event: CallbackEvent) -> None:
            raise KeyboardInterrupt

    event = CallbackEvent("node_end", "x", None, None, "t", "n", "mock", None, 1, 1, "execute", 0)
    with pytest.raises(KeyboardInterrupt):
        Callbacks([Interrupted()]).tell(event, print, passing=(KeyboardInterrupt,))


def test_callbacks_may_be_coroutines(registry: NodeRegistry) -> None:
    seen: list[str] = []

    class Later(FlowCallback):
        async def on_node_start(self, event: CallbackEvent) -> None:
            seen.append(event.node_id)

        async def on_node_end(self, event: CallbackEvent) -> None:
            raise ValueError("later")

    drive = Drive(registry, {"type": "mock"}, Callbacks([Later()]))
    drive.step("n")
    assert seen == ["n"]
    assert "ValueError: later" in drive.reports[0]


def test_reports_survive_a_closed_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report_to_stderr("told")
    assert capsys.readouterr().err == "told\n"
    monkeypatch.setattr(sys, "stderr", None)
    report_to_stderr("nobody hears it")


# -- registering --------------------------------------------------------------------------------------------


def test_nobody_listens_until_somebody_registers(nobody: Callbacks, recorder: Recorder) -> None:
    assert not registered_callbacks()
    assert register_callback(recorder) is recorder
    register_callback(recorder)
    assert registered_callbacks()
    assert registered_callbacks().listens("flow_resume")
    event = CallbackEvent("node_end", "x", None, None, "t", "n", "mock", None, 1, 1, "execute", 0)
    registered_callbacks().tell(event, print)
    assert recorder.events == [event], "registered twice, told once"
    assert unregister_callback(recorder)
    assert not unregister_callback(recorder)
    assert not registered_callbacks()


def test_a_class_is_registered_as_one_object(nobody: Callbacks) -> None:
    made: list[Any] = []

    @register_callback
    class Mine(FlowCallback):
        def __init__(self) -> None:
            made.append(self)

        def on_flow_end(self, event: CallbackEvent) -> None:
            pass

    register_callback(Mine)
    assert len(made) == 1
    assert registered_callbacks().listens("flow_end")
    assert not registered_callbacks().listens("node_end"), "what is only inherited costs nothing"
    assert unregister_callback(Mine)


def test_any_object_with_the_methods_will_do(nobody: Callbacks) -> None:
    class Duck:
        on_node_end = staticmethod(print)

    register_callback(Duck())
    assert registered_callbacks().listens("node_end")


@pytest.mark.parametrize("handler", [object(), print, 7, None, FlowCallback(), type("Flusher", (), {"flush": print})()])
def test_what_hears_nothing_is_refused(nobody: Callbacks, handler: object) -> None:
    with pytest.raises(InputError, match="is no callback: it defines none of on_flow_start, "):
        register_callback(handler)
    assert not registered_callbacks()


PLUG_IN = """
from plaita import FlowCallback, register_callback

@register_callback
class OnImport(FlowCallback):
    def on_node_end(self, event):
        pass

class Later(FlowCallback):
    def on_flow_end(self, event):
        pass

def register_all():
    register_callback(Later())
"""


def test_a_preloaded_module_registers_by_its_import_and_by_register_all(
    nobody: Callbacks, registry: NodeRegistry, write_module: Callable[[str, str], str]
) -> None:
    load_preloads([write_module("callbacks_plug_in", PLUG_IN)], registry)
    assert registered_callbacks().listens("node_end")
    assert registered_callbacks().listens("flow_end")


def test_the_package_exports_them() -> None:
    assert plaita.FlowCallback is FlowCallback
    assert plaita.register_callback is register_callback
    assert plaita.unregister_callback is unregister_callback
    assert plaita.CallbackEvent is CallbackEvent

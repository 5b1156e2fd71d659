"""What supervisor and executor say to each other: one frozen dataclass a message, to a frame and back.

Owns the shape of headers and the order of blobs. Values of flows travel as JSON text in blobs and are never parsed
here. ``decode`` raises FrameError for a frame that is none of these messages: the other end is not to be trusted then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from plaita.callback_url import CallbackKey
from plaita.errors import FrameError
from plaita.ipc.frames import Frame

Action = Literal["execute", "timed_out", "event", "timeout", "cancelled"]
AnswerKind = Literal["advanced", "ended", "failed", "suspended", "stopped"]
Wanted = Literal["definition", "context"]

ANSWER_KINDS = frozenset(("advanced", "ended", "failed", "suspended", "stopped"))
_ACTIONS = ("execute", "timed_out", "event", "timeout", "cancelled")
_WANTED = frozenset(("definition", "context"))


# -- reading a header that cannot be trusted ----------------------------------------------------


def _text(header: Mapping[str, Any], key: str) -> str:
    value = header.get(key)
    if type(value) is not str:
        raise FrameError(f"{key}: {value!r:.60} is not a text")
    return value


def _text_or_none(header: Mapping[str, Any], key: str) -> str | None:
    value = header.get(key)
    if value is not None and type(value) is not str:
        raise FrameError(f"{key}: {value!r:.60} is not a text")
    return value


def _integer(header: Mapping[str, Any], key: str) -> int:
    value = header.get(key)
    if type(value) is not int:
        raise FrameError(f"{key}: {value!r:.60} is not an integer")
    return value


def _integer_or_none(header: Mapping[str, Any], key: str) -> int | None:
    value = header.get(key)
    if value is not None and type(value) is not int:
        raise FrameError(f"{key}: {value!r:.60} is not an integer")
    return value


def _boolean(header: Mapping[str, Any], key: str) -> bool:
    value = header.get(key)
    if type(value) is not bool:
        raise FrameError(f"{key}: {value!r:.60} is not true or false")
    return value


def _texts(header: Mapping[str, Any], key: str) -> list[str]:
    value = header.get(key, [])
    if type(value) is not list or any(type(item) is not str for item in value):
        raise FrameError(f"{key}: {value!r:.60} is not a list of texts")
    return value


def _object_or_none(header: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    value = header.get(key)
    if value is not None and type(value) is not dict:
        raise FrameError(f"{key}: {value!r:.60} is not an object")
    return value


def _counts(header: Mapping[str, Any], key: str) -> dict[str, int]:
    value = header.get(key, {})
    if type(value) is not dict or any(type(count) is not int for count in value.values()):
        raise FrameError(f"{key}: {value!r:.60} is not an object of integers")
    return value


class _Blobs:
    """Deals out a frame's blobs in the order the header names them, and insists that none is missing or left over."""

    __slots__ = ("_blobs", "_has", "_next")

    def __init__(self, frame: Frame) -> None:
        self._blobs = frame.blobs
        has = frame.header.get("has", "")
        if type(has) is not str:
            raise FrameError(f"has: {has!r:.60} is not a text")
        self._has = has
        self._next = 0

    def _take(self) -> bytes:
        position = self._next
        if position >= len(self._blobs):
            raise FrameError(f"a frame with {len(self._blobs)} blobs names more of them")
        self._next = position + 1
        return self._blobs[position]

    def single(self, letter: str) -> bytes | None:
        return self._take() if letter in self._has else None

    def named(self, names: list[str]) -> dict[str, bytes]:
        return {name: self._take() for name in names}

    def finish(self) -> None:
        if self._next != len(self._blobs):
            raise FrameError(f"a frame with {len(self._blobs)} blobs names {self._next} of them")


# -- supervisor -> executor -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """Run one node. Times in milliseconds; ``input``, ``results`` and ``state`` hold JSON text each.

    ``fresh``: the context is complete, replace whatever is held; else only what the executor lacks is given.
    ``definition``: given when the executor is thought not to hold the flow with this ``flow_hash``.
    ``action``: what to do with the node: run it; ``timed_out``: nothing, its process was killed; or end its wait with
    an ``event`` (whose data ``event`` is, JSON text, None meaning null), by ``timeout``, or as ``cancelled``.
    ``callback``: what URLs of the execution are made with, None where the platform has no secret for it. ``visits``: of
    each callback node of the flow, by id, the visit that is under way or else comes next; empty without a secret.
    """

    seq: int
    execution_id: str
    tenant_id: str
    flow_id: str
    version: int | str
    flow_hash: str
    node_id: str
    visit: int
    attempt: int
    step: int
    namespace: str
    action: Action = "execute"
    time_left_ms: int | None = None
    last_node: str | None = None
    branch: str | None = None
    fresh: bool = True
    definition: bytes | None = None
    input: bytes | None = None
    results: dict[str, bytes] = field(default_factory=dict)
    state: dict[str, bytes] = field(default_factory=dict)
    event: bytes | None = None
    callback: CallbackKey | None = None
    visits: dict[str, int] = field(default_factory=dict)

    def visit_to_wait(self, node_id: str) -> int:
        """Which visit of a callback node is the next to wait, as this step sees it."""
        over = node_id == self.node_id and self.action != "execute"
        return self.visits.get(node_id, 1) + over

    def to_frame(self) -> Frame:
        blobs: list[bytes] = []
        has = ""
        if self.definition is not None:
            has += "d"
            blobs.append(self.definition)
        if self.input is not None:
            has += "i"
            blobs.append(self.input)
        if self.event is not None:
            has += "e"
            blobs.append(self.event)
        blobs.extend(self.results.values())
        blobs.extend(self.state.values())
        header = {
            "type": "run",
            "seq": self.seq,
            "execution_id": self.execution_id,
            "tenant_id": self.tenant_id,
            "flow_id": self.flow_id,
            "version": self.version,
            "flow_hash": self.flow_hash,
            "node_id": self.node_id,
            "visit": self.visit,
            "attempt": self.attempt,
            "step": self.step,
            "namespace": self.namespace,
            "action": self.action,
            "time_left_ms": self.time_left_ms,
            "last_node": self.last_node,
            "branch": self.branch,
            "fresh": self.fresh,
            "has": has,
        }
        if self.callback is not None:
            header["callback"] = [self.callback.key, self.callback.base]
        if self.visits:
            header["visits"] = self.visits
        if self.results:
            header["results"] = list(self.results)
        if self.state:
            header["state"] = list(self.state)
        return Frame(header, blobs)

    @classmethod
    def from_frame(cls, frame: Frame) -> Run:
        header, blobs = frame.header, _Blobs(frame)
        version = header.get("version")
        if type(version) is not int and type(version) is not str:
            raise FrameError(f"version: {version!r:.60} is neither an integer nor a text")
        action = header.get("action")
        if type(action) is not str or action not in _ACTIONS:
            raise FrameError(f"action: {action!r:.60} is none of {', '.join(_ACTIONS)}")
        message = cls(
            seq=_integer(header, "seq"),
            execution_id=_text(header, "execution_id"),
            tenant_id=_text(header, "tenant_id"),
            flow_id=_text(header, "flow_id"),
            version=version,
            flow_hash=_text(header, "flow_hash"),
            node_id=_text(header, "node_id"),
            visit=_integer(header, "visit"),
            attempt=_integer(header, "attempt"),
            step=_integer(header, "step"),
            namespace=_text(header, "namespace"),
            action=cast(Action, action),
            time_left_ms=_integer_or_none(header, "time_left_ms"),
            last_node=_text_or_none(header, "last_node"),
            branch=_text_or_none(header, "branch"),
            fresh=_boolean(header, "fresh"),
            definition=blobs.single("d"),
            input=blobs.single("i"),
            event=blobs.single("e"),
            results=blobs.named(_texts(header, "results")),
            state=blobs.named(_texts(header, "state")),
            callback=_callback(header),
            visits=_counts(header, "visits"),
        )
        blobs.finish()
        return message


def _callback(header: Mapping[str, Any]) -> CallbackKey | None:
    said = _texts(header, "callback")
    if len(said) not in (0, 2):
        raise FrameError("callback: a key and a base are wanted")
    return CallbackKey(*said) if said else None


@dataclass(frozen=True, slots=True)
class Step:
    """Run the next node of the execution whose context and flow this executor holds: what is new since the last Run.

    The hot path: a small header, no blobs.
    """

    seq: int
    execution_id: str
    node_id: str
    visit: int
    attempt: int
    step: int
    time_left_ms: int | None = None
    last_node: str | None = None
    branch: str | None = None

    def to_frame(self) -> Frame:
        header: dict[str, Any] = {
            "type": "step",
            "seq": self.seq,
            "execution_id": self.execution_id,
            "node_id": self.node_id,
            "visit": self.visit,
            "attempt": self.attempt,
            "step": self.step,
        }
        if self.time_left_ms is not None:
            header["time_left_ms"] = self.time_left_ms
        if self.last_node is not None:
            header["last_node"] = self.last_node
        if self.branch is not None:
            header["branch"] = self.branch
        return Frame(header)

    @classmethod
    def from_frame(cls, frame: Frame) -> Step:
        header = frame.header
        if frame.blobs:
            raise FrameError("a step message with blobs")
        return cls(
            _integer(header, "seq"),
            _text(header, "execution_id"),
            _text(header, "node_id"),
            _integer(header, "visit"),
            _integer(header, "attempt"),
            _integer(header, "step"),
            _integer_or_none(header, "time_left_ms"),
            _text_or_none(header, "last_node"),
            _text_or_none(header, "branch"),
        )

    def after(self, run: Run) -> Run:
        """The whole Run this stands for, ``run`` being the last one of the execution."""
        return Run(
            self.seq,
            self.execution_id,
            run.tenant_id,
            run.flow_id,
            run.version,
            run.flow_hash,
            self.node_id,
            self.visit,
            self.attempt,
            self.step,
            run.namespace,
            "execute",
            self.time_left_ms,
            self.last_node,
            self.branch,
            False,
            callback=run.callback,
            visits={**run.visits, run.node_id: run.visit + 1} if run.node_id in run.visits else run.visits,
        )


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing more will come: end with exit code 0."""

    def to_frame(self) -> Frame:
        return Frame({"type": "leave"})

    @classmethod
    def from_frame(cls, frame: Frame) -> Leave:
        return cls()


# -- executor -> supervisor -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """Born and ready. ``started_ms``: epoch milliseconds of the fork."""

    pid: int
    generation: int
    slot: int
    python: str
    started_ms: int

    def to_frame(self) -> Frame:
        return Frame(
            {
                "type": "hello",
                "pid": self.pid,
                "generation": self.generation,
                "slot": self.slot,
                "python": self.python,
                "started_ms": self.started_ms,
            }
        )

    @classmethod
    def from_frame(cls, frame: Frame) -> Hello:
        header = frame.header
        return cls(
            pid=_integer(header, "pid"),
            generation=_integer(header, "generation"),
            slot=_integer(header, "slot"),
            python=_text(header, "python"),
            started_ms=_integer(header, "started_ms"),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the step ``seq``. ``started_ms`` and ``ended_ms``: epoch milliseconds around the node's run.

    ``retire``: why this executor must not be used again; it leaves by itself after this answer. ``error``: ErrorInfo
    as JSON, for ``failed``. ``result``, ``output``, ``state`` (changed keys only): JSON text. ``subscription``: for
    ``suspended``.
    """

    seq: int
    kind: AnswerKind
    node_id: str
    started_ms: int
    ended_ms: int
    next_node: str | None = None
    branch: str | None = None
    attempts: int = 1
    error: dict[str, Any] | None = None
    retire: str | None = None
    result: bytes | None = None
    output: bytes | None = None
    state: dict[str, bytes] = field(default_factory=dict)
    subscription: dict[str, Any] | None = None

    def to_frame(self) -> Frame:
        blobs: list[bytes] = []
        has = ""
        if self.result is not None:
            has += "r"
            blobs.append(self.result)
        if self.output is not None:
            has += "o"
            blobs.append(self.output)
        header: dict[str, Any] = {
            "type": "answer",
            "seq": self.seq,
            "kind": self.kind,
            "node_id": self.node_id,
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "next_node": self.next_node,
            "attempts": self.attempts,
            "has": has,
        }
        if self.branch is not None:
            header["branch"] = self.branch
        if self.error is not None:
            header["error"] = self.error
        if self.retire is not None:
            header["retire"] = self.retire
        if self.subscription is not None:
            header["subscription"] = self.subscription
        if self.state:
            header["state"] = list(self.state)
            blobs.extend(self.state.values())
        return Frame(header, blobs)

    @classmethod
    def from_frame(cls, frame: Frame) -> Answer:
        header, blobs = frame.header, _Blobs(frame)
        kind = header.get("kind")
        if type(kind) is not str or kind not in ANSWER_KINDS:
            raise FrameError(f"kind: {kind!r:.60} is none of {', '.join(sorted(ANSWER_KINDS))}")
        message = cls(
            seq=_integer(header, "seq"),
            kind=cast(AnswerKind, kind),
            node_id=_text(header, "node_id"),
            started_ms=_integer(header, "started_ms"),
            ended_ms=_integer(header, "ended_ms"),
            next_node=_text_or_none(header, "next_node"),
            branch=_text_or_none(header, "branch"),
            attempts=_integer(header, "attempts"),
            error=_object_or_none(header, "error"),
            retire=_text_or_none(header, "retire"),
            result=blobs.single("r"),
            output=blobs.single("o"),
            state=blobs.named(_texts(header, "state")),
            subscription=_object_or_none(header, "subscription"),
        )
        blobs.finish()
        return message


@dataclass(frozen=True, slots=True)
class Need:
    """The step ``seq`` was not begun: something is not held here. Send it again with it."""

    seq: int
    what: list[Wanted]

    def to_frame(self) -> Frame:
        return Frame({"type": "need", "seq": self.seq, "what": self.what})

    @classmethod
    def from_frame(cls, frame: Frame) -> Need:
        what = _texts(frame.header, "what")
        if not what or not _WANTED.issuperset(what):
            raise FrameError(f"what: {what!r:.60} is none of definition, context")
        return cls(seq=_integer(frame.header, "seq"), what=cast(list[Wanted], what))


@dataclass(frozen=True, slots=True)
class Progress:
    """The node of step ``seq`` says how far it is. ``note``: at most PROGRESS_NOTE_LIMIT characters."""

    seq: int
    note: str

    def to_frame(self) -> Frame:
        return Frame({"type": "progress", "seq": self.seq, "note": self.note})

    @classmethod
    def from_frame(cls, frame: Frame) -> Progress:
        return cls(seq=_integer(frame.header, "seq"), note=_text(frame.header, "note"))


PROGRESS_NOTE_LIMIT = 4096

ToExecutor: TypeAlias = Run | Step | Leave
FromExecutor: TypeAlias = Hello | Answer | Need | Progress

_TO_EXECUTOR: dict[str, Callable[[Frame], ToExecutor]] = {
    "run": Run.from_frame,
    "step": Step.from_frame,
    "leave": Leave.from_frame,
}
_FROM_EXECUTOR: dict[str, Callable[[Frame], FromExecutor]] = {
    "hello": Hello.from_frame,
    "answer": Answer.from_frame,
    "need": Need.from_frame,
    "progress": Progress.from_frame,
}


def decode_to_executor(frame: Frame) -> ToExecutor:
    """The message a supervisor sent. Raises FrameError."""
    kind = frame.header.get("type")
    reader = _TO_EXECUTOR.get(kind) if type(kind) is str else None
    if reader is None:
        raise FrameError(f"type: {kind!r:.60} is no message to an executor")
    return reader(frame)


def decode_from_executor(frame: Frame) -> FromExecutor:
    """The message an executor sent. Raises FrameError."""
    kind = frame.header.get("type")
    reader = _FROM_EXECUTOR.get(kind) if type(kind) is str else None
    if reader is None:
        raise FrameError(f"type: {kind!r:.60} is no message from an executor")
    return reader(frame)

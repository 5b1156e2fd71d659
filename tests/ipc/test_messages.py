from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from plaita.callback_url import CallbackKey
from plaita.errors import FrameError
from plaita.ipc.frames import Frame, FrameReader, encode
from plaita.ipc.messages import (
    Action,
    Answer,
    Hello,
    Leave,
    Need,
    Progress,
    Run,
    Step,
    decode_from_executor,
    decode_to_executor,
)

RUN = Run(
    seq=1,
    execution_id="e",
    tenant_id="t",
    flow_id="f",
    version=3,
    flow_hash="h",
    node_id="n",
    visit=1,
    attempt=2,
    step=4,
    namespace="ns",
    time_left_ms=10,
    last_node="m",
    branch="b",
    definition=b"{}",
    input=b"null",
    results={"a": b"1", "b": b""},
    state={"k": b"[]"},
)
BARE_RUN = Run(1, "e", "t", "f", "v", "h", "n", 1, 1, 1, "ns", action="timed_out", fresh=False)
WOKEN = Run(1, "e", "t", "f", "v", "h", "n", 1, 1, 1, "ns", action="event", event=b'{"ok":true}')
CALLING = replace(RUN, callback=CallbackKey("k", "https://h"), visits={"n": 1, "cb": 2})
ANSWER = Answer(
    7,
    "ended",
    "n",
    1,
    2,
    next_node="x",
    branch="b",
    attempts=3,
    error={"code": 1},
    retire="why",
    result=b"1",
    output=b"2",
    state={"k": b"3", "l": b""},
    subscription={"event": "e"},
)


def through(frame: Frame) -> Frame:
    return FrameReader().feed(b"".join(encode(frame)))[0]


@pytest.mark.parametrize("message", [RUN, BARE_RUN, WOKEN, CALLING, replace(RUN, action="event", event=b""), Leave()])
def test_to_executor_and_back(message: Any) -> None:
    assert decode_to_executor(through(message.to_frame())) == message


@pytest.mark.parametrize("action", get_args(Action))
def test_every_action_is_read(action: Any) -> None:
    assert decode_to_executor(through(replace(BARE_RUN, action=action).to_frame())) == replace(BARE_RUN, action=action)


@pytest.mark.parametrize(
    "message",
    [
        ANSWER,
        Answer(1, "stopped", "n", 0, 0),
        Answer(1, "advanced", "n", 0, 0, next_node="m", result=b""),
        Hello(1, 2, 3, "3.11", 4),
        Need(1, ["definition", "context"]),
        Progress(1, "note"),
    ],
)
def test_from_executor_and_back(message: Any) -> None:
    assert decode_from_executor(through(message.to_frame())) == message


def changed(message: Any, **fields: Any) -> Frame:
    frame = message.to_frame()
    return Frame({**frame.header, **fields}, frame.blobs)


@pytest.mark.parametrize(
    "frame",
    [
        Frame({}),
        Frame({"type": ["run"]}),
        Frame({"type": "answer"}),
        changed(RUN, seq="1"),
        changed(RUN, seq=True),
        changed(RUN, version=1.5),
        changed(RUN, action="else"),
        changed(RUN, action=["execute"]),
        changed(RUN, fresh=1),
        changed(RUN, time_left_ms="1"),
        changed(RUN, last_node=1),
        changed(RUN, results="ab"),
        changed(RUN, results=["a", "b", "c"]),
        changed(RUN, results=["a"]),
        changed(RUN, results=[1, 2]),
        changed(RUN, has=""),
        changed(RUN, has="die"),
        changed(RUN, has=1),
        changed(RUN, visits=["cb"]),
        changed(RUN, visits={"cb": "2"}),
        changed(RUN, callback=["k"]),
    ],
)
def test_no_message_to_an_executor(frame: Frame) -> None:
    with pytest.raises(FrameError):
        decode_to_executor(frame)


@pytest.mark.parametrize(
    "frame",
    [
        Frame({"type": "run"}),
        Frame({"type": None}),
        changed(ANSWER, kind="done"),
        changed(ANSWER, kind=[]),
        changed(ANSWER, error="text"),
        changed(ANSWER, subscription=1),
        changed(ANSWER, state=["k"]),
        changed(ANSWER, node_id=None),
        changed(ANSWER, retire=1),
        changed(Need(1, ["context"]), what=[]),
        changed(Need(1, ["context"]), what=["else"]),
        changed(Hello(1, 2, 3, "x", 4), pid=None),
        changed(Progress(1, "n"), note=1),
    ],
)
def test_no_message_from_an_executor(frame: Frame) -> None:
    with pytest.raises(FrameError):
        decode_from_executor(frame)


def test_decision_30_an_executor_counts_the_visits_of_callback_nodes_from_run_to_run() -> None:
    first = replace(CALLING, visits={"n": 1, "cb": 2})
    assert (first.visit_to_wait("n"), first.visit_to_wait("cb")) == (1, 2)
    woken = replace(first, node_id="cb", visit=2, action="event")
    assert woken.visit_to_wait("cb") == 3, "its wait is over"
    after = Step(2, "e", "other", 1, 1, 5).after(woken)
    assert (after.visits, after.visit_to_wait("cb")) == ({"n": 1, "cb": 3}, 3)
    assert Step(3, "e", "cb", 3, 1, 6).after(after).visits == {"n": 1, "cb": 3}, "other nodes are not counted"

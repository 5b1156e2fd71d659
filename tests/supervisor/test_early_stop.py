"""A stop before there is a loop (R6)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from plaita.supervisor.early_stop import EarlyStop, StoppedEarly


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_stop_while_something_is_opened_is_heard_when_it_will_be_closed() -> None:
    closed: list[str] = []

    def start() -> None:
        with EarlyStop() as early, contextlib.ExitStack() as stack:
            with early.in_one_piece():
                os.kill(os.getpid(), signal.SIGTERM)
                stack.callback(closed.append, "the socket")
            closed.append("went on")

    with pytest.raises(StoppedEarly):
        start()
    assert closed == ["the socket"]


def test_what_fails_to_open_says_so_itself() -> None:
    with pytest.raises(OSError, match="taken"), EarlyStop() as early, early.in_one_piece():
        raise OSError("taken")


def test_before_and_after_a_stop_is_heard_at_once() -> None:
    def start() -> None:
        with EarlyStop() as early:
            with early.in_one_piece():
                pass
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("it went on")

    with pytest.raises(StoppedEarly):
        start()

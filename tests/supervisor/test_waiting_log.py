"""What is said of a server that cannot be reached: each reason at once, the same one now and then."""

from __future__ import annotations

import pytest

from plaita.supervisor import connection_log
from plaita.supervisor.connection_log import AGAIN_MS, WaitingLog


def test_a_reason_is_said_when_it_is_new_and_then_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now = 0
    monkeypatch.setattr(connection_log, "boot_ms", lambda: now)
    monkeypatch.setattr(connection_log.logs, "warning", lambda event, **facts: said.append(facts["error"]))
    waiting = WaitingLog()
    for now in range(0, AGAIN_MS + 1, 500):
        waiting.say("Unavailable", f"no answer within 0.{49 - now % 2} s")
    assert len(said) == 2
    waiting.say("Unavailable", "Connection refused")
    waiting.say("Unavailable", "Connection refused")
    assert said[2:] == ["Connection refused"]
    assert waiting.said == 3

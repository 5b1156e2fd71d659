"""The first words with Redis: what waiting does not mend is told at once, the rest is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaita.errors import InputError
from plaita.store.call import Answer, Call, Unavailable, Unknown, Value
from plaita.store.keys import Keys
from plaita.store.permissions import Denied
from plaita.supervisor import meeting

INFO = b"server_name:valkey\r\nvalkey_version:9.1.2\r\nrun_id:r\r\ncluster_enabled:%d\r\n"


class Scripted:
    """A runner whose server says one thing after another."""

    def __init__(self, *answers: Answer[Any] | bytes, denied: Denied) -> None:
        self.answers = list(answers)
        self.denied = denied

    async def run(self, call: Call[Any]) -> Answer[Any]:
        if call.name == "server.server_info":
            answer = self.answers.pop(0)
            return Value(call.parse(answer)) if isinstance(answer, bytes) else answer
        return Value(self.denied)


def meet(*answers: Answer[Any] | bytes, denied: Denied | None = None) -> tuple[str, list[str]]:
    """What it found, or why not; and what it said meanwhile."""
    waited: list[str] = []
    runner: Any = Scripted(*answers, denied=denied or Denied([], []))
    try:
        info = asyncio.run(
            meeting.meet(runner, Keys("plaita"), lambda answer: waited.append(type(answer).__name__), 0.0)
        )
    except InputError as error:
        return str(error), waited
    return f"{info.product} {info.version}", waited


@pytest.mark.parametrize(
    ("answers", "denied", "found", "waited"),
    [
        ([INFO % 0], None, "valkey 9.1.2", []),
        ([Unavailable("gone"), Unknown("cut"), INFO % 0], None, "valkey 9.1.2", ["Unavailable", "Unknown"]),
        ([INFO % 1], None, "redis_url: the server is a Redis Cluster", []),
        ([Unavailable("gone"), Unavailable("WRONGPASS", auth=True)], None, "refuses us (WRONGPASS)", ["Unavailable"]),
        ([INFO % 0], Denied(["xadd"], []), "redis_url: the user may not run xadd", []),
    ],
)
def test_DECISIONS_40_what_waiting_does_not_mend_is_told_at_once(
    answers: list[Any], denied: Denied | None, found: str, waited: list[str]
) -> None:
    said, meanwhile = meet(*answers, denied=denied)
    assert found in said
    assert meanwhile == waited

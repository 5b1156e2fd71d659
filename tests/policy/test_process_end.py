"""How a supervisor ended, in systemd's words (ledger S14): what is a death, and what it is called."""

from __future__ import annotations

import pytest

from plaita.errors import InputError
from plaita.policy.process_end import ProcessEnd, read_end

ENDS = [
    ("exited", "0", "exit 0", None, 0, False),
    ("exited", "75", "exit 75", None, 75, False),
    ("exited", "78", "exit 78", None, 78, False),
    ("exited", "1", "exit 1", None, 1, True),
    ("exited", "70", "exit 70", None, 70, True),
    ("killed", "KILL", "SIGKILL", 9, None, True),
    ("killed", "SIGKILL", "SIGKILL", 9, None, True),
    ("killed", "9", "SIGKILL", 9, None, True),
    ("killed", "TERM", "SIGTERM", 15, None, True),
    ("dumped", "SEGV", "SIGSEGV (core dumped)", 11, None, True),
    ("dumped", "ABRT", "SIGABRT (core dumped)", 6, None, True),
    ("killed", "RTMIN+3", "SIGRTMIN+3", None, None, True),
    ("killed", "99", "signal 99", 99, None, True),
]


@pytest.mark.parametrize(("code", "status", "cause", "signal", "exit_code", "abnormal"), ENDS)
def test_S14_the_whole_table(
    code: str, status: str, cause: str, signal: int | None, exit_code: int | None, abnormal: bool
) -> None:
    end = read_end(code, status)
    assert end == ProcessEnd(cause, signal, exit_code)
    assert end.abnormal is abnormal


@pytest.mark.parametrize(
    ("code", "status"),
    [("exited", "KILL"), ("exited", ""), ("exited", "-1"), ("killed", ""), ("killed", "a b"), ("gone", "1"), ("", "")],
)
def test_what_systemd_would_not_say_is_refused(code: str, status: str) -> None:
    with pytest.raises(InputError):
        read_end(code, status)

"""What ``plaita show`` says of a node that is open (ledger L4)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from plaita.cli.execution_commands import print_execution
from plaita.client.views import liveness_of
from plaita.clock import iso_utc
from plaita.policy.liveness import Liveness

NOW = 1_700_000_000_000


def document(age_ms: int, *, holder: str | None = "host1", ended: str | None = None, now: int = NOW):
    node = {"id": "a", "type": "t", "status": "running", "started_at": iso_utc(now - age_ms), "ended_at": ended}
    return {
        "status": "running",
        "holder": holder,
        "last_update_time": iso_utc(now - age_ms),
        "nodes": [{**node, "attempts": 1}],
    }


@pytest.mark.parametrize(
    ("given", "judged"),
    [
        (document(1_000), Liveness.RUNS),
        (document(120_000), Liveness.RUNS),
        (document(121_000), Liveness.SILENT),
        (document(1_000, holder=None), Liveness.SILENT),
        (document(1_000, ended=iso_utc(NOW)), Liveness.IDLE),
        (document(1_000) | {"status": "completed"}, Liveness.IDLE),
        (document(1_000) | {"last_update_time": "soon"}, Liveness.SILENT),
        (document(1_000) | {"last_update_time": None}, Liveness.SILENT),
    ],
)
def test_L4_judged_by_the_last_sign_of_life_and_the_lease(given, judged: Liveness) -> None:
    assert liveness_of(given, NOW) is judged


def test_L4_show_says_so_only_when_nobody_vouches_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_execution(document(1_000), NOW)
    assert "no sign of life" not in capsys.readouterr().out
    print_execution(document(1_000, holder=None), NOW)
    assert "no sign of life" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("connected")
def test_44_show_judges_signs_of_life_by_the_servers_clock(
    plaita: Any, redis_do: Any, hello: dict[str, Any], flow_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks may have a clock that is a day ahead: what runs is not called dead for it (KNOWN-TROUBLE 44)."""
    monkeypatch.setattr(time, "time_ns", lambda real=time.time_ns: real() + 86_400 * 10**9)
    assert plaita("flow", "put", flow_file({**hello, "flow_id": "f"})).code == 0
    assert plaita("start", "f", "--id", "x").code == 0
    now, part = redis_do("TIME")
    moment = int(now) * 1000 + int(part) // 1000
    monkeypatch.setattr("plaita.client.views.execution", lambda row, tenant: document(0, now=moment))
    done = plaita("show", "x")
    assert done.code == 0, done.err
    assert "no sign of life" not in " ".join(done.out.split())

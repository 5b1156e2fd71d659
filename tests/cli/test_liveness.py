"""What ``plaita show`` says of a node that is open (ledger L4)."""

from __future__ import annotations

import pytest

from plaita.cli.execution_commands import print_execution
from plaita.client.views import liveness_of
from plaita.clock import iso_utc, wall_ms
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
    print_execution(document(1_000, now=wall_ms()))
    assert "no sign of life" not in capsys.readouterr().out
    print_execution(document(1_000, holder=None, now=wall_ms()))
    assert "no sign of life" in " ".join(capsys.readouterr().out.split())

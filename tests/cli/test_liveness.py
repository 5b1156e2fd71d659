"""What ``plaita show`` says of a node that is open (ledger L4)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from doctor_world import row

from plaita.cli.execution_commands import print_execution
from plaita.client.views import liveness_of
from plaita.clock import iso_utc
from plaita.policy.liveness import Liveness

NOW = 1_700_000_000_000


def document(age_ms: int, *, holder: str | None = "host1", ended: str | None = None, now: int = NOW, status="running"):
    node = {"id": "a", "type": "t", "status": status, "started_at": iso_utc(now - age_ms), "ended_at": ended}
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
        (document(1_000, holder=None, status="retrying"), Liveness.IDLE),
    ],
)
def test_L4_judged_by_the_last_sign_of_life_and_the_lease(given, judged: Liveness) -> None:
    assert liveness_of(given, NOW) is judged


def test_L4_show_says_so_only_when_nobody_vouches_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_execution(document(1_000), NOW)
    assert "no sign of life" not in capsys.readouterr().out
    print_execution(document(1_000, holder=None), NOW)
    assert "no sign of life" in " ".join(capsys.readouterr().out.split())


def test_S10_between_two_attempts_nobody_holds_it_and_that_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    print_execution(document(1_000, holder=None, status="retrying"), NOW)
    assert "running: node a failed and is tried again later" in capsys.readouterr().out


@pytest.mark.parametrize(("status", "told"), [("suspended", True), ("running", True), ("error", False)])
def test_a_wait_that_is_over_is_told_of_until_the_execution_is(
    capsys: pytest.CaptureFixture[str], status: str, told: bool
) -> None:
    """The row of one in error keeps what ended its wait, for a retry; nobody is about to go on with it."""
    print_execution(document(1_000) | {"status": status, "woken": "event"}, NOW)
    assert ("woken by event, to be gone on with" in capsys.readouterr().out) is told


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


@pytest.mark.parametrize("config", ["", "{bad", "[]", '{"callback_config": 1}', '{"callback_config": {"full_url": 5}}'])
def test_what_a_wait_is_for_is_shown_however_it_is_stored(plaita: Any, redis_do: Any, keys: Any, config: str) -> None:
    row(redis_do, keys, "x1", "suspended", wait="1", wait_type="http_callback", wait_config=config)
    assert "at node n for event http_callback" in plaita("show", "x1").out
    url = "https://h/callback/default/x1/n/1/t"
    told = json.dumps({"callback_config": {"full_url": url}, "auth_config": {"token": "S3cr3t-marker"}})
    row(redis_do, keys, "x1", "suspended", wait_config=told)
    shown = plaita("show", "x1").out + plaita("show", "x1", "--json").out
    assert f"for a call to {url}" in shown
    assert "S3cr3t-marker" not in shown


def test_a_list_of_what_waits_says_where_and_for_what(plaita: Any, redis_do: Any, keys: Any) -> None:
    waits = {"wait": "1", "wait_type": "paid", "wait_since": NOW, "wait_deadline": NOW + 86_400_000, "last_node": "n"}
    row(redis_do, keys, "x1", "suspended", **waits)
    row(redis_do, keys, "x2", "suspended", **waits, woken="event")
    listed = {one["execution_id"]: one for one in plaita("list", "--status", "suspended", "--json").json["executions"]}
    told = {"event_type": "paid", "node_id": "n", "since": iso_utc(NOW), "deadline": iso_utc(NOW + 86_400_000)}
    assert (listed["x1"]["waiting"], listed["x1"]["woken"]) == (told, None)
    assert (listed["x2"]["waiting"], listed["x2"]["woken"]) == (None, "event")
    shown = plaita("list", "--status", "suspended").out
    assert ["n", "paid", iso_utc(NOW), iso_utc(NOW + 86_400_000)] in [line.split()[-4:] for line in shown.splitlines()]
    assert "no more: woken by event" in shown

"""Disabled tenants and epochs with real supervisors (ledger T2, DECISIONS 12).

Min-idle and lease are ten minutes: what goes on was let go, and did not wait for either (DECISIONS 44).
"""

from __future__ import annotations

import pytest
from hosts import SupervisorProcess, World, until
from tenant_world import FLAGS, Tenant, counted, counter

from plaita import jsontext
from plaita.errors import RefusedError
from plaita.store import executions


def nothing_queued(world: World) -> bool:
    return all(stream.length == stream.pending == 0 for stream in world.stats().streams)


def gate(supervisor: SupervisorProcess, name: str) -> dict:
    [found] = [row for row in supervisor.ask("explain")["gates"] if row["gate"] == name]
    return found


def test_T2_a_disabled_tenant_runs_nothing_and_goes_on_when_enabled(world: World) -> None:
    acme, other = Tenant(world, "acme"), Tenant(world, "other")
    opened = world.folder / "open"
    acme.put("a", "b", gate=opened)
    other.put("a")
    supervisor = world.serving(executors=1, **FLAGS)
    first = acme.start()
    supervisor.busy("a")
    waiting = acme.start()  # read by nobody: the one executor is in a step
    acme.status("disabled")
    with pytest.raises(RefusedError) as refused:
        acme.start()
    assert refused.value.reason == "tenant_disabled"
    until(lambda: "event=tenant.seen" in supervisor.text(), "the supervisor saw it")
    opened.touch()
    until(lambda: counter(supervisor, "tenant_disabled_dropped") == 2, "both dropped")
    others = other.start()
    assert until(lambda: other.row(others).status == "completed", "another tenant's")
    assert nothing_queued(world)
    row = acme.row(first)
    assert (row.status, row.lease, sorted(row.results)) == ("running", None, ["a", "start"])
    assert acme.row(waiting).status == "pending"
    ran = [line for line in counted(world) if line[1] == "acme"]
    assert ran == [["+", "acme", first, "a"], ["-", "acme", first, "a"]]

    acme.status("active")
    assert acme.requeue() == 2
    until(lambda: acme.statuses([first, waiting]) == {"completed"}, "both ended")
    ran = [line[2:] for line in counted(world) if line[:2] == ["+", "acme"]]
    assert sorted(ran) == sorted([execution, node] for execution in (first, waiting) for node in "ab")
    assert acme.row(first).control["lost"] == "1"  # it was let go, not lost
    assert supervisor.text().count("event=carrier.dropped") == 2


def test_T2_a_cancel_of_a_disabled_tenants_execution_ends_it(world: World) -> None:
    acme = Tenant(world, "acme")
    acme.put("a", "b")
    acme.put("a", "b", flow_id="gated", gate=world.folder / "never")
    supervisor = world.serving(executors=1, kill_grace=0, **FLAGS)
    running = acme.start("gated")
    supervisor.busy("a")
    pending = acme.start()
    acme.status("disabled")
    for execution in (running, pending):
        payload = {"type": "resume", "resume_type": "cancel", "execution_id": execution, "tenant_id": "acme"}
        world.do(executions.request_cancel(acme.keys, execution, "enough", jsontext.dumps(payload)))
    until(lambda: acme.statuses([running, pending]) == {"cancelled"}, "both cancelled")
    assert {line[3] for line in counted(world)} == {"a"}


@pytest.mark.parametrize(("written", "why"), [(None, "missing"), ("6", "older"), ("8", "newer")])
def test_T2_under_another_epoch_carriers_stay_pending_until_it_fits(
    world: World, written: str | None, why: str
) -> None:
    acme, default = Tenant(world, "acme"), Tenant(world, "default")
    acme.put("a")
    default.put("a")
    acme.status("active", written)
    supervisor = world.serving(environment={"PLAITA_DEPLOYMENT_EPOCH": "7"}, **FLAGS)
    assert gate(supervisor, "tenant epoch")["open"]
    ids = [acme.start() for _ in range(3)]
    until(lambda: counter(supervisor, "tenant_epoch_refused") >= 3, "three refusals")
    others = default.start()
    until(lambda: default.row(others).status == "completed", "the default tenant's")
    supervisor.wait_status(lambda status: (status["tenants"]["epoch"] or {}).get("found") == written, "what was found")
    told = supervisor.ask("status")["tenants"]["epoch"]
    assert (told["why"], told["expected"]) == (why, "7")
    shut = gate(supervisor, "tenant epoch")
    assert not shut["open"]
    assert why in shut["value"]
    assert shut["limit"] == "7"
    assert shut["advice"]
    assert supervisor.text().count("event=tenant.epoch_refused") == 1  # once a minute
    assert acme.statuses(ids) == {"pending"}
    assert all("attempts" not in acme.row(execution).control for execution in ids)
    assert world.stats().streams[0].length == 3

    acme.status("active", "7")
    until(lambda: acme.statuses(ids) == {"completed"}, "they run")
    assert supervisor.wait_status(lambda status: status["tenants"]["epoch"] is None, "it fits")
    assert world.stats().dlq_length == 0


def test_T2_a_host_of_the_right_epoch_runs_what_another_leaves(world: World) -> None:
    acme = Tenant(world, "acme")
    acme.put("a")
    acme.status("active", "8")
    old = world.serving(instance="old", environment={"PLAITA_DEPLOYMENT_EPOCH": "7"}, **FLAGS)
    new = world.serving(instance="new", environment={"PLAITA_DEPLOYMENT_EPOCH": "8"}, **FLAGS)
    new.ask("pause")  # so that the old one meets them first
    ids = [acme.start() for _ in range(5)]
    until(lambda: counter(old, "tenant_epoch_refused") >= 5, "the old one leaves them")
    new.ask("resume")
    until(lambda: acme.statuses(ids) == {"completed"}, "they run")
    assert {acme.row(execution).control["last_holder"].partition("/")[0] for execution in ids} == {"new"}
    assert counter(old, "steps") == 0


def test_T2_the_check_can_be_switched_off_and_says_so(world: World) -> None:
    acme = Tenant(world, "acme")
    acme.put("a")
    environment = {"PLAITA_DEPLOYMENT_EPOCH": "7", "PLAITA_TENANT_STATUS_EPOCH_STRICT": "0"}
    supervisor = world.serving(environment=environment, **FLAGS)
    execution = acme.start()
    until(lambda: acme.row(execution).status == "completed", "it runs")
    assert "tenant_status_epoch_strict: off" in supervisor.text()


def test_T2_a_newer_epoch_lets_go_what_runs_here(world: World) -> None:
    acme = Tenant(world, "acme")
    opened = world.folder / "open"
    acme.put("a", "b", gate=opened)
    acme.status("active", "7")
    old = world.serving(instance="old", environment={"PLAITA_DEPLOYMENT_EPOCH": "7"}, **FLAGS)
    execution = acme.start()
    old.busy("a")
    new = world.serving(instance="new", environment={"PLAITA_DEPLOYMENT_EPOCH": "8"}, **FLAGS)
    acme.status("active", "8")
    until(lambda: "event=tenant.seen" in old.text(), "the old one saw it")
    opened.touch()
    until(lambda: acme.row(execution).status == "completed", "it ends on the new one")
    assert acme.row(execution).control["last_holder"].startswith("new/")
    assert counter(new, "finished") == 1

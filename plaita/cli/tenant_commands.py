"""``plaita tenant``: who may run, how much at a time, and the end of one (ledger T2 to T4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from plaita.cli.options import Session, new_app, with_session
from plaita.cli.output import console, facts, print_json, table
from plaita.errors import InputError
from plaita.policy.retention import retention_ms, tombstone_ttl_ms

if TYPE_CHECKING:
    from plaita.runtime_config import TenantConfig

app = new_app("tenant", "Tenants: who may run, and how much at a time.\n\nExample: plaita tenant list")

TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", show_default=False)]
_COLUMNS = ("tenant_id", "status", "quota", "running", "parked", "pending", "suspended", "why")


def _settings(session: Session) -> TenantConfig:
    from plaita.runtime_config import load_tenant_config

    found = load_tenant_config(flags=session.flags)
    session.tell(found)
    return found


@app.command("list")
@with_session
def list_command(
    session: Session,
    everybody: Annotated[
        bool, typer.Option("--all", help="Also those that only have executions: goes through all keys of the server")
    ] = False,
) -> None:
    """Tenants, with what they have under way.

    Those that have a status, a quota or parked carriers.

    Example: plaita tenant list --all --json
    """
    from plaita.client import tenants

    found = session.perform(tenants.list_tenants, _settings(session).deployment_epoch, everybody=everybody)
    if session.json:
        print_json(found)
        return
    rows = [[one[name] for name in _COLUMNS] for one in found["tenants"]]
    console().print(table(("tenant", *_COLUMNS[1:]), rows))


@app.command("status")
@with_session
def status(session: Session, name: TenantArgument) -> None:
    """One tenant: whether it may run, and how much it has to do.

    Its status, its quota, what it has under way. One that nobody knows is active.

    Example: plaita tenant status acme --json
    """
    from plaita.client import tenants

    answer = session.perform(tenants.tenant_status, name, _settings(session).deployment_epoch)
    _print(session, answer)


@app.command("enable")
@with_session
def enable(session: Session, name: TenantArgument) -> None:
    """Let a tenant run again. What lost its carrier while it was disabled gets one; needs your supervisors' settings.

    Example: plaita tenant enable acme
    """
    from plaita.client import tenants

    settings = _settings(session)
    kept_ms = retention_ms(settings.execution_state_ttl_days, settings.task_max_age_seconds)
    answer = session.perform(tenants.enable, name, settings.deployment_epoch, kept_ms, session.client.family)
    _print(session, answer)


@app.command("disable")
@with_session
def disable(session: Session, name: TenantArgument) -> None:
    """Stop a tenant; nothing is lost.

    Starts are refused, nothing of it begins, what runs is let go after its step.

    Example: plaita tenant disable acme
    """
    from plaita.client import tenants

    _print(session, session.perform(tenants.disable, name, _settings(session).deployment_epoch))


@app.command("quota")
@with_session
def quota(
    session: Session,
    name: TenantArgument,
    number: Annotated[int, typer.Argument(metavar="N", help="Executions at a time; 0: no limit", show_default=False)],
) -> None:
    """Limit how many executions of a tenant run at a time. What is over it waits, and costs nothing.

    Example: plaita tenant quota acme 20
    """
    from plaita.client import tenants

    _print(session, session.perform(tenants.set_quota, name, number))


@app.command("purge")
@with_session
def purge(
    session: Session,
    name: TenantArgument,
    yes: Annotated[bool, typer.Option("--yes", help="All of it, for good")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also one that is not disabled")] = False,
) -> None:
    """Take everything of a disabled tenant away for good.

    Executions, flows, schedules, start keys, credentials, quota.

    Its tombstones stay: made again under that name, it runs no old start. Broken off, run it again. Needs the queue
    settings of your supervisors; with several queues, run it for each.

    Example: plaita tenant purge acme --yes
    """
    from plaita.client import tenants

    if not yes:
        raise InputError(f"purge takes all that tenant {name!r} has away for good; say --yes if that is what you want")
    kept = _settings(session)
    lifetime_ms = tombstone_ttl_ms(
        kept.execution_tombstone_ttl_seconds, kept.execution_state_ttl_days, kept.task_max_age_seconds
    )
    _print(session, session.perform(tenants.purge, name, lifetime_ms, force=force))


def _print(session: Session, answer: dict[str, Any]) -> None:
    if session.json:
        print_json(answer)
        return
    rows = [("tenant", answer["tenant_id"])]
    rows += [(word.replace("_", " "), value) for word, value in answer.items() if word != "tenant_id"]
    console().print(facts(rows))

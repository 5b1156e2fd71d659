"""``plaita schedule``: executions that the clock starts (ledger E5)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plaita.cli.inputs import read_json
from plaita.cli.options import Session, new_app, with_session
from plaita.cli.output import console, facts, print_json, table
from plaita.errors import InputError

app = new_app(
    "schedule",
    "Schedules: executions that the clock starts.\n\n"
    'Example: plaita schedule put report --flow report --cron "0 6 * * 1-5" --tz Europe/Berlin',
)

ScheduleArgument = Annotated[str, typer.Argument(metavar="ID", show_default=False)]
TzOption = Annotated[str, typer.Option("--tz", metavar="ZONE", help="Whose clocks, like Europe/Berlin")]


@app.command("put")
@with_session
def put(
    session: Session,
    schedule_id: ScheduleArgument,
    flow: Annotated[str, typer.Option("--flow", metavar="F", help="The flow to start", show_default=False)],
    cron: Annotated[
        str,
        typer.Option("--cron", metavar="EXPR", help="Minute, hour, day of month, month, weekday", show_default=False),
    ],
    tz: TzOption = "UTC",
    given: Annotated[str | None, typer.Option("--input", metavar="JSON|@FILE|-", help="The input; default: {}")] = None,
    version: Annotated[
        str | None, typer.Option("--version", metavar="V", help="Default: the latest at each due time")
    ] = None,
    misfire: Annotated[
        str, typer.Option("--misfire", metavar="skip|once|all", help="What to do about due times that were missed")
    ] = "once",
    label: Annotated[str, typer.Option("--name", metavar="TEXT", help="What people call it")] = "",
    disabled: Annotated[bool, typer.Option("--disabled", help="Paused, until `plaita schedule enable`")] = False,
) -> None:
    """Make a schedule, or make it another. With the same times, what was missed is still seen to.

    Exit codes: 0 done, 1 refused (no such flow), 2 bad input.

    Example: plaita schedule put report --flow report --cron "0 6 * * 1-5" --tz Europe/Berlin --input '{"to": "ann"}'
    """
    from plaita.client import schedules

    found = session.perform(
        schedules.put,
        schedule_id,
        flow,
        cron,
        tz=tz,
        params=read_json(given, "--input", {}),
        version=version,
        misfire=misfire,
        enabled=not disabled,
        name=label,
    )
    if session.json:
        print_json(found)
        return
    done = "made" if found["created"] else "changed"
    when = f"next run {found['next_run_at']}" if found["enabled"] else "paused"
    console().print(f"schedule {found['schedule_id']} {done}: {when}")


@app.command("list")
@with_session
def list_command(session: Session) -> None:
    """All schedules of the tenant.

    Example: plaita schedule list --json
    """
    from plaita.client import schedules

    found = session.perform(schedules.list_schedules)
    if session.json:
        print_json(found)
        return
    columns = ("schedule_id", "status", "flow_id", "cron", "tz", "next_run_at", "last_fired_at")
    rows = [[one.get(name) for name in columns] for one in found["schedules"]]
    console().print(table(("schedule", "status", "flow", "cron", "zone", "next run", "last run"), rows))


@app.command("show")
@with_session
def show(session: Session, schedule_id: ScheduleArgument) -> None:
    """One schedule.

    Example: plaita schedule show report
    """
    from plaita.client import schedules

    _print(session, session.perform(schedules.get, schedule_id))


@app.command("rm")
@with_session
def remove(session: Session, schedule_id: ScheduleArgument) -> None:
    """Take a schedule away; the executions it started stay.

    Example: plaita schedule rm report
    """
    from plaita.client import schedules

    found = session.perform(schedules.remove, schedule_id)
    if session.json:
        print_json(found)
    else:
        console().print(f"schedule {found['schedule_id']} removed")


@app.command("enable")
@with_session
def enable(session: Session, schedule_id: ScheduleArgument) -> None:
    """Let a paused schedule go on, from its next due time.

    Example: plaita schedule enable report
    """
    from plaita.client import schedules

    _print(session, session.perform(schedules.set_enabled, schedule_id, True))


@app.command("disable")
@with_session
def disable(session: Session, schedule_id: ScheduleArgument) -> None:
    """Pause a schedule. What would have been due meanwhile is not run later.

    Example: plaita schedule disable report
    """
    from plaita.client import schedules

    _print(session, session.perform(schedules.set_enabled, schedule_id, False))


@app.command("trigger")
@with_session
def trigger(session: Session, schedule_id: ScheduleArgument) -> None:
    """Run a schedule once, now; its due times stay as they are.

    Exit codes: 0 started, 1 refused (no such schedule or flow, tenant disabled).

    Example: plaita schedule trigger report
    """
    from plaita.client import schedules

    found = session.perform(schedules.trigger, schedule_id)
    if session.json:
        print_json(found)
    else:
        console().print(f"execution {found['execution_id']} started")


@app.command("history")
@with_session
def history(
    session: Session,
    schedule_id: ScheduleArgument,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many; 50 are kept")] = 20,
) -> None:
    """What became of its due times, the latest first.

    Example: plaita schedule history report
    """
    from plaita.client import schedules

    found = session.perform(schedules.history, schedule_id, limit)
    if session.json:
        print_json(found)
        return
    rows = [
        (one.get("fired_at"), one.get("trigger_kind"), one.get("due_at"), one.get("enqueue"), _remark(one))
        for one in found["fires"]
    ]
    console().print(table(("at", "by", "due", "outcome", "execution or reason"), rows))


@app.command("preview")
@with_session
def preview(
    session: Session,
    schedule_id: Annotated[str | None, typer.Argument(metavar="[ID]", show_default=False)] = None,
    cron: Annotated[str | None, typer.Option("--cron", metavar="EXPR", help="Of an expression instead")] = None,
    tz: TzOption = "UTC",
    count: Annotated[int, typer.Option("--count", metavar="N", help="How many")] = 5,
) -> None:
    """The next due times, of a schedule or of an expression.

    Example: plaita schedule preview --cron "30 2 * * *" --tz Europe/Berlin
    """
    from plaita.client import schedules

    if (schedule_id is None) == (cron is None):
        raise InputError("give one of ID and --cron")
    if cron is not None:
        found = schedules.preview_of(cron, tz, count)
    else:
        found = session.perform(schedules.preview, schedule_id, count)
    if session.json:
        print_json(found)
    else:
        console().print(table(("due", f"in {found['tz']}"), zip(found["due"], found["local"], strict=True)))


def _print(session: Session, found: dict[str, Any]) -> None:
    if session.json:
        print_json(found)
    else:
        console().print(facts((name.replace("_", " "), value) for name, value in found.items()))


def _remark(one: dict[str, Any]) -> str:
    if one.get("enqueue") == "skipped":
        return f"{'' if one.get('counted') else 'at least '}{one.get('count')} missed since {one.get('first_due_at')}"
    return one.get("execution_id") or one.get("reason") or ""

"""``plaita reindex|reap``: putting right by hand what a server lost (ledger D4, D6)."""

from __future__ import annotations

from typing import Annotated

import typer

from plaita.cli.options import Session, with_session
from plaita.cli.output import console, facts, note, print_json, table
from plaita.policy.retention import retention_ms


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``plaita``."""
    app.command("reindex")(with_session(reindex))
    app.command("reap")(with_session(reap))


def _retention_ms(session: Session) -> int:
    return retention_ms(session.retention.execution_state_ttl_days, session.retention.task_max_age_seconds)


def reindex(
    session: Session,
    requeue: Annotated[
        bool, typer.Option("--requeue", help="Also give a carrier to executions that should move and have lost theirs")
    ] = False,
) -> None:
    """Rebuild the tenant's indexes from its rows.

    All of them, and what waits and schedules have lost; runs beside the work.

    With --requeue, what is pending or running, is run by nobody and has no carrier in this queue gets one: for after
    the streams were lost. It needs the queue settings of your supervisors.

    Example: plaita reindex --tenant acme --requeue
    """
    from plaita.client import upkeep

    answer = session.perform(upkeep.reindex, _retention_ms(session), requeue=requeue, family=session.client.family)
    if session.json:
        print_json(answer)
        return
    rows = [("tenant", answer["tenant_id"]), ("rows", answer["rows"])]
    rows += [("indexed again", answer["indexed"]), ("moved to their status", answer["moved"])]
    rows += [("members without a row, taken out", answer["dropped"]), ("ends put right", answer["ending"])]
    if answer["waits"]:
        rows.append(("waits put back", answer["waits"]))
    if answer["schedules"]:
        rows.append(("schedules given their due time", answer["schedules"]))
    if answer["deleted"]:
        rows.append(("of deleted executions, left out", answer["deleted"]))
    if requeue:
        rows += [("without a carrier", answer["idle"]), ("given one", answer["requeued"])]
    console().print(facts(rows))


def reap(
    session: Session,
    idle_minutes: Annotated[
        float,
        typer.Option("--idle-minutes", metavar="N", help="No sign of life for so long", show_default=False),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show them")] = False,
) -> None:
    """End as error (orphaned) what runs and is held by nobody.

    That is, what gave no sign of life for so long.

    What waits in a long queue after a drain gives none either: take a time well above that. `plaita reindex --requeue`
    brings back what has only lost its carrier; a retry wakes what was reaped.

    Example: plaita reap --idle-minutes 120 --dry-run
    """
    from plaita.client import upkeep

    answer = session.perform(upkeep.reap, idle_minutes, _retention_ms(session), dry_run=dry_run)
    if session.json:
        print_json(answer)
        return
    shown = {"reaped": "would be reaped"} if dry_run else {}
    rows = [
        (
            one["execution_id"],
            one["flow_id"],
            one["node_id"],
            one["last_update_time"],
            one["idle_minutes"],
            shown.get(one["outcome"], one["outcome"]),
        )
        for one in answer["executions"]
    ]
    console().print(table(("execution", "flow", "node", "updated", "idle minutes", "outcome"), rows))
    note(", ".join(f"{shown.get(word, word)}: {count}" for word, count in answer["outcomes"].items()) or "none")

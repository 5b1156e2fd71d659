"""``plaita approval``: what people are asked, and their decisions (FLOW-FORMAT rule 16)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plaita.cli.inputs import read_json
from plaita.cli.options import Session, new_app, with_session
from plaita.cli.output import console, facts, json_text, print_json, table
from plaita.clock import iso_utc
from plaita.errors import InputError

app = new_app("approval", "Approvals: what people are asked to decide.\n\nExample: plaita approval list")

MOST_NAMES = 5
ApprovalArgument = Annotated[str, typer.Argument(metavar="ID", show_default=False)]


@app.command("list")
@with_session
def list_command(
    session: Session, limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many")] = 50
) -> None:
    """Open approvals, the oldest first.

    Example: plaita approval list --json
    """
    from plaita.client import approvals

    found = session.perform(approvals.list_approvals, limit)
    if session.json:
        print_json(found)
        return
    rows = [
        (one["approval_id"], one.get("problem") or one["title"], one.get("strategy"), _undecided(one), one["deadline"])
        for one in found["approvals"]
    ]
    console().print(table(("approval", "title", "strategy", "undecided", "deadline"), rows))
    if found["total"] > len(rows):
        console().print(f"{len(rows)} of {found['total']}; --limit shows more")


def _undecided(one: dict[str, Any]) -> str:
    names = one.get("undecided", [])
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


@app.command("show")
@with_session
def show(session: Session, approval_id: ApprovalArgument) -> None:
    """One open approval: what is asked, who may decide, who has.

    Example: plaita approval show approval_review_1f2e3d4c5b6a
    """
    from plaita.client import approvals

    found = session.perform(approvals.get_approval, approval_id)
    if session.json:
        print_json(found)
        return
    out = console()
    out.print(facts((name.replace("_", " "), _text(value)) for name, value in found.items() if name != "decisions"))
    rows = [
        (one["approver_id"], one["decision"], one["comments"], iso_utc(one["timestamp"])) for one in found["decisions"]
    ]
    if rows:
        out.print(table(("who", "decision", "comment", "at"), rows))


def _text(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or None
    return json_text(value) if isinstance(value, dict | list) else value


@app.command("decide")
@with_session
def decide(
    session: Session,
    approval_id: ApprovalArgument,
    by: Annotated[str, typer.Option("--by", metavar="WHO", help="The approver who decides", show_default=False)],
    approve: Annotated[bool, typer.Option("--approve", help="Decide for it")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Decide against it")] = False,
    comment: Annotated[str, typer.Option("--comment", metavar="C", help="Why")] = "",
    form: Annotated[str | None, typer.Option("--form", metavar="JSON|@FILE|-", help="The fields of its form")] = None,
) -> None:
    """Decide as one of the approvers. The decision that settles the matter wakes the execution.

    Exit codes: 0 taken, 1 refused (nobody is asked, not an approver, decided before, too late), 2 bad input.

    Example: plaita approval decide approval_review_1f2e3d4c5b6a --approve --by ann --comment "looks right"
    """
    from plaita.client import approvals

    if approve == reject:
        raise InputError("give one of --approve and --reject")
    value = read_json(form, "--form", None)
    answer = session.perform(
        approvals.decide,
        approval_id,
        "approve" if approve else "reject",
        by,
        comment,
        value,
        session.client.family,
    )
    if session.json:
        print_json(answer)
    elif answer["settled"]:
        console().print(f"decided: {answer['final_decision']}; execution {answer['execution_id']} goes on")
    else:
        console().print("taken; others have yet to decide")

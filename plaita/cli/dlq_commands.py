"""``plaita dlq``: what could not be run, to be looked at and emptied. Of all tenants: the stream is the platform's."""

from __future__ import annotations

from typing import Annotated

import typer

from plaita.cli.options import Session, new_app, with_session
from plaita.cli.output import console, facts, json_text, note, print_json, table
from plaita.errors import InputError

app = new_app("dlq", "The dead letters: what could not be run.\n\nExample: plaita dlq list")

_COLUMNS = ("dlq_id", "dead_lettered_at", "cause", "execution_id", "flow_id", "node_id", "attempts", "reason")
_HEADINGS = ("id", "since", "cause", "execution", "flow", "node", "attempts", "reason")


@app.command("list")
@with_session
def list_command(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many")] = 50,
) -> None:
    """Dead letters, the newest first, of all tenants.

    Example: plaita dlq list --json
    """
    from plaita.client import operations

    found = session.perform(operations.list_dead_letters, limit)
    if session.json:
        print_json(found)
        return
    rows = [tuple(one[name] for name in _COLUMNS) for one in found["entries"]]
    console().print(table(_HEADINGS, rows))
    note(f"{len(rows)} of {found['total']}")


@app.command("show")
@with_session
def show(session: Session, dlq_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """One dead letter with the carrier it was.

    Example: plaita dlq show 1764490800000-0 --json
    """
    from plaita.client import operations

    document = session.perform(operations.get_dead_letter, dlq_id)
    if session.json:
        print_json(document)
        return
    rows = [
        (name.replace("_", " "), value if isinstance(value, str | int | None) else json_text(value))
        for name, value in document.items()
    ]
    console().print(facts(rows))


@app.command("purge")
@with_session
def purge(
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", help="All of them, for good")] = False,
) -> None:
    """Take all dead letters away, of all tenants. They cannot be brought back.

    Example: plaita dlq purge --yes
    """
    from plaita.client import operations

    if not yes:
        raise InputError("purge takes all dead letters away for good; say --yes if that is what you want")
    answer = session.perform(operations.purge_dead_letters)
    if session.json:
        print_json(answer)
    else:
        console().print(f"{answer['purged']} dead letters taken away")

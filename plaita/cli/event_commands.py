"""``plaita event``: telling waiting executions that something happened (DECISIONS 27)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from plaita.cli.inputs import read_json
from plaita.cli.options import Session, new_app, with_session
from plaita.cli.output import console, print_json

app = new_app("event", "Events: what executions wait for.\n\nExample: plaita event publish paid --correlation-id 17")


@app.command("publish")
@with_session
def publish(
    session: Session,
    event_type: Annotated[str, typer.Argument(metavar="TYPE", show_default=False)],
    data: Annotated[str | None, typer.Option("--data", metavar="JSON|@FILE|-", help="What the event brings")] = None,
    correlation_id: Annotated[
        str | None, typer.Option("--correlation-id", metavar="ID", help="Only the waits of this correlation")
    ] = None,
    event_id: Annotated[
        str | None, typer.Option("--event-id", metavar="ID", help="The same id is the same event, for 7 days")
    ] = None,
) -> None:
    """Publish an event. Executions that wait for it go on; one with a correlation is kept 7 days for those that do not
    wait yet.

    Example: plaita event publish order_paid --data '{"amount": 12}' --correlation-id order-17
    """
    from plaita.client import events

    value = read_json(data, "--data", None)
    published = session.perform(
        events.publish,
        event_type,
        value,
        correlation_id=correlation_id,
        event_id=event_id,
    )
    if session.json:
        print_json(asdict(published))
    elif published.duplicate:
        console().print(f"event {published.event_id} was published before; nothing was done")
    else:
        console().print(f"published {published.event_type} as {published.event_id}")

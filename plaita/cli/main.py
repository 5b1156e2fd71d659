"""``plaita``: flows and executions. Commands import what they need when they run, so that ``--help`` is quick."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from plaita.cli import (
    approval_commands,
    cluster_commands,
    dlq_commands,
    doctor_command,
    event_commands,
    execution_commands,
    exits,
    flow_commands,
    schedule_commands,
    tenant_commands,
    upkeep_commands,
)
from plaita.cli.inputs import read_json
from plaita.cli.options import Session, new_app, with_session
from plaita.cli.output import console, facts, note, print_json, table, write_out

PROGRAM = "plaita"

app = new_app(PROGRAM, "Durable flows: store them, start them, follow them.\n\nExample: plaita run hello.json")
queue_app = new_app("queue", "The queue of executions.\n\nExample: plaita queue stats")
app.add_typer(flow_commands.app)
app.add_typer(queue_app)
app.add_typer(dlq_commands.app)
app.add_typer(tenant_commands.app)
app.add_typer(cluster_commands.app)
app.add_typer(event_commands.app)
app.add_typer(approval_commands.app)
app.add_typer(schedule_commands.app)


def _version(wanted: bool) -> None:
    if wanted:
        from plaita import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit")
    ] = False,
) -> None:
    """Durable flows: store them, start them, follow them.

    Example: plaita run hello.json
    """


@app.command("run")
@with_session
def run(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON or YAML; - for stdin")],
    given: Annotated[str | None, typer.Option("--input", metavar="JSON|@FILE|-", help="The input; default: {}")] = None,
    preload: Annotated[
        list[str] | None, typer.Option("--preload", metavar="MODULE", help="Module with node types")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Give up waiting then (exit 4)", min=0)
    ] = None,
) -> None:
    """Run one flow on a private server, to its end or first wait.

    Prints its output or the wait, and leaves nothing behind.

    Exit codes: 0 completed or waiting, 1 error or cancelled, 2 the flow or the input is wrong, 4 timed out.

    Example: plaita run hello.json --input '{"name": "x"}'
    """
    from plaita import jsontext
    from plaita.cli.definitions import judge_flow, node_registry, problems_document, read_source
    from plaita.cli.private_run import run_privately
    from plaita.errors import FlowDefinitionError, InputError

    if file == "-" and given == "-":
        raise InputError("FILE and --input cannot both be stdin")
    value = read_json(given, "--input", {})
    if session.flags["redis_url"] is not None or session.flags["embedded"] is not None:
        note("run brings a server of its own: --redis-url and --embedded are not used")
    source, types = read_source(file), node_registry(preload or ())
    try:
        definition = judge_flow(source, types)
    except FlowDefinitionError as error:
        if session.json:
            print_json(problems_document(error))
        exits.complain(file, exits.lines_of(error))
        raise typer.Exit(exits.USAGE) from None
    for warning in definition.warnings:
        note(f"warning: {warning}")
    document = run_privately(definition, value, preload or (), timeout, session.flags["tenant"])
    if session.json:
        print_json(document)
    elif document["status"] == "completed":
        write_out(jsontext.dumps(document["output"]) + b"\n")
    elif document["status"] == "suspended":
        wait = document["waiting"]
        until = f" until {wait['deadline']}" if wait["deadline"] else ""
        what = "an approval" if "approval_id" in wait else f"the event {wait['event_type']}"
        console().print(f"suspended: node {wait['node_id']} waits for {what}{until}")
    else:
        error_text = document.get("error") or {}
        note(f"{document['status']}: {error_text.get('message') or 'no reason is stored'}")
    raise typer.Exit(0 if document["status"] == "suspended" else execution_commands.ended_code([document]))


execution_commands.register(app)
upkeep_commands.register(app)
doctor_command.register(app)


@queue_app.command("stats")
@with_session
def queue_stats(session: Session) -> None:
    """How long the streams are, what is in work, delayed and dead.

    Example: plaita queue stats --json
    """
    from plaita.client import operations

    found = session.perform(operations.queue_stats)
    if session.json:
        print_json(found)
        return
    out = console()
    rows = [(one["name"], one["length"], one["pending"], one["lag"]) for one in found["streams"]]
    out.print(table(("stream", "length", "in work", "not yet read"), rows))
    names = ("delayed", "parked", "dlq_length", "oldest_pending_s")
    out.print(facts((name.replace("_", " "), found[name]) for name in names))


def main(arguments: list[str] | None = None) -> None:
    """The ``plaita`` program."""
    exits.speak_any_language()
    sys.exit(exits.run_app(app, PROGRAM, sys.argv[1:] if arguments is None else arguments))


if __name__ == "__main__":
    main()

"""``plaita flow ...``: definitions, checked before they are stored."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import typer

from plaita.cli import exits
from plaita.cli.options import Session, new_app, with_session
from plaita.cli.output import console, facts, note, print_json, table
from plaita.errors import FlowDefinitionError, UnreachableError

app = new_app("flow", "Definitions of flows.\n\nExample: plaita flow put order.json")

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="JSON or YAML; - for stdin")]
IdOption = Annotated[str | None, typer.Option("--id", metavar="ID", help="Default: the flow's own, or the file's name")]
UnknownOption = Annotated[bool, typer.Option("--allow-unknown-types", help="Accept node types that no one here knows")]
PreloadOption = Annotated[
    list[str] | None, typer.Option("--preload", metavar="MODULE", help="Module with node types [env: PLAITA_PRELOAD]")
]


def _refuse(session: Session, source: str, error: FlowDefinitionError) -> None:
    from plaita.cli.definitions import problems_document

    if session.json:
        print_json(problems_document(error))
    exits.complain(source, exits.lines_of(error))
    raise typer.Exit(exits.USAGE)


def _warnings(warnings: Any) -> list[dict[str, str]]:
    return [{"place": warning.place, "reason": warning.reason} for warning in warnings]


@app.command()
@with_session
def put(
    session: Session,
    file: FileArgument,
    version: Annotated[str | None, typer.Option("--version", metavar="V", help="Default: the next number")] = None,
    flow_id: IdOption = None,
    preload: PreloadOption = None,
    allow_unknown_types: UnknownOption = False,
    force: Annotated[bool, typer.Option("--force", help="Replace other content under the same version")] = False,
) -> None:
    """Check a flow and store it. Refused flows are listed problem by problem, with place and reason.

    Example: plaita flow put order.json --preload my_nodes
    """
    from plaita.cli.definitions import judge_flow, node_registry, read_source
    from plaita.client import operations

    source, types = read_source(file), node_registry(preload or ())
    judge = functools.partial(judge_flow, source, types, given_id=flow_id, allow_unknown_types=allow_unknown_types)
    try:
        try:
            definition = judge()
        except FlowDefinitionError as error:
            if not all(problem.place.endswith(".type") for problem in error.problems):
                raise
            definition = judge(other_types=_announced_types(session))  # DECISIONS 23
    except FlowDefinitionError as error:
        _refuse(session, file, error)
        return
    done = session.perform(
        operations.put_flow, definition.flow_id, version, definition.flow_hash, definition.body, force=force
    )
    if session.json:
        print_json(
            {
                "ok": True,
                "flow_id": definition.flow_id,
                "version": done.version,
                "flow_hash": done.flow_hash,
                "created": done.created,
                "warnings": _warnings(definition.warnings),
            }
        )
        return
    for warning in definition.warnings:
        note(f"warning: {warning}")
    console().print(
        f"{definition.flow_id} version {done.version}{'' if done.created else ' (this content was there already)'}"
    )


def _announced_types(session: Session) -> list[str]:
    """Node types of live supervisors; none when nobody can be asked: then the flow is refused, which is the answer."""
    from plaita.client import operations

    try:
        return session.perform(operations.announced_node_types)
    except UnreachableError as error:
        note(f"which node types other hosts have is not known: {error}")
        return []


@app.command()
@with_session
def validate(
    session: Session,
    file: FileArgument,
    flow_id: IdOption = None,
    preload: PreloadOption = None,
    allow_unknown_types: UnknownOption = False,
) -> None:
    """Check a flow without storing it; needs no server.

    Example: plaita flow validate order.yaml --json
    """
    from plaita.cli.definitions import judge_flow, node_registry, read_source

    source, types = read_source(file), node_registry(preload or ())
    try:
        definition = judge_flow(source, types, given_id=flow_id, allow_unknown_types=allow_unknown_types)
    except FlowDefinitionError as error:
        _refuse(session, file, error)
        return
    if session.json:
        print_json(
            {
                "ok": True,
                "flow_id": definition.flow_id,
                "flow_hash": definition.flow_hash,
                "warnings": _warnings(definition.warnings),
            }
        )
        return
    for warning in definition.warnings:
        note(f"warning: {warning}")
    console().print(f"{file}: valid")


@app.command("list")
@with_session
def list_command(session: Session) -> None:
    """The stored flows.

    Example: plaita flow list
    """
    from plaita.client import operations

    found = session.perform(operations.list_flows)
    if session.json:
        print_json({"flows": found})
        return
    rows = [(flow["flow_id"], flow["latest"], flow["versions"]) for flow in found]
    console().print(table(("flow", "latest", "versions"), rows))


@app.command()
@with_session
def show(
    session: Session,
    flow_id: Annotated[str, typer.Argument(metavar="ID")],
    version: Annotated[str | None, typer.Option("--version", metavar="V", help="Default: the latest")] = None,
) -> None:
    """A stored flow: its versions and its definition.

    Example: plaita flow show order --version 2
    """
    from plaita.client import operations

    found = session.perform(operations.show_flow, flow_id, version)
    if session.json:
        print_json(found)
        return
    out = console()
    out.print(facts((name, found[name]) for name in ("flow_id", "version", "flow_hash")))
    rows = [(one["version"], one["put_at"], one["flow_hash"]) for one in found["versions"]]
    out.print(table(("version", "put at", "hash"), rows))
    out.print_json(data=found["definition"])


@app.command()
@with_session
def rm(
    session: Session,
    flow_id: Annotated[str, typer.Argument(metavar="ID")],
) -> None:
    """Remove a flow and its versions. Executions that run or wait keep the definition they began with, and go on.

    Example: plaita flow rm order
    """
    from plaita.client import operations

    done = session.perform(operations.remove_flow, flow_id)
    if session.json:
        print_json(done)
        return
    console().print(f"{done['flow_id']}: {done['versions_removed']} version(s) removed")
    if done["executions_going_on"]:
        note(f"{done['executions_going_on']} execution(s) of it go on, with the definition they began with")

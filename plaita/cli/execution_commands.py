"""``plaita start|show|list|wait|resume|cancel|rm``: executions, from the outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from plaita.cli import exits
from plaita.cli.inputs import read_json
from plaita.cli.options import Session, with_session
from plaita.cli.output import console, facts, json_text, note, print_json, table
from plaita.errors import InputError, WaitTimeoutError
from plaita.policy.liveness import Liveness
from plaita.policy.retention import tombstone_ttl_ms

IdArgument = Annotated[str, typer.Argument(metavar="ID")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="R", help="Stored with the execution")]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="Give up waiting then (exit 4)", min=0)
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``plaita``."""
    for name, command in (
        ("start", start),
        ("show", show),
        ("list", list_command),
        ("wait", wait),
        ("resume", resume),
        ("cancel", cancel),
        ("rm", rm),
    ):
        app.command(name)(with_session(command))


def ended_code(documents: list[dict[str, Any]]) -> int:
    """0 when all completed, 1 when one ended as error or cancelled (DECISIONS 43)."""
    return exits.FAILED if any(one["status"] in ("error", "cancelled") for one in documents) else exits.DONE


def _status(document: Mapping[str, Any], now_ms: int) -> str:
    """The status, and when nobody vouches for the node that is open, that too (ledger L4)."""
    from plaita.client import views

    status = str(document.get("status"))
    if views.liveness_of(document, now_ms) is Liveness.SILENT:
        return f"{status}, but no sign of life: its supervisor may be gone, and another one takes it over"
    again = [one for one in document.get("nodes") or [] if one.get("status") == "retrying"]
    if status == "running" and document.get("holder") is None and again:
        return f"{status}: node {again[0]['id']} failed and is tried again later"
    return status


def print_execution(document: Mapping[str, Any], now_ms: int) -> None:
    """One execution for people. ``now_ms``: by the server's clock, as the signs of life in its row are."""
    error = document.get("error")
    rows: list[tuple[str, Any]] = [
        ("execution", document.get("execution_id")),
        ("flow", f"{document.get('flow_id')} version {document.get('version')}"),
        ("tenant", document.get("tenant_id")),
        ("status", _status(document, now_ms)),
        ("holder", document.get("holder")),
        ("created", document.get("created_at")),
        ("updated", document.get("last_update_time")),
        ("input", json_text(document.get("input"))),
    ]
    if document.get("status") == "completed":
        rows.append(("output", json_text(document.get("output"))))
    if isinstance(error, Mapping):
        place = f" at node {error['node']}" if error.get("node") else ""
        rows.append(("error", f"{error.get('code')} {error.get('error_type')}{place}: {error.get('message')}"))
    rows += _waiting_rows(document)
    out = console()
    out.print(facts(rows))
    nodes = [
        (one["id"], one["type"], one["status"], one["started_at"], one["ended_at"], one["attempts"])
        for one in document.get("nodes") or []
    ]
    if nodes:
        out.print(table(("node", "type", "status", "started", "ended", "attempts"), nodes))


def _waiting_rows(document: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What it waits for, and how far a cancel is."""
    rows: list[tuple[str, Any]] = []
    waiting, cancelled = document.get("waiting"), document.get("cancel")
    if isinstance(waiting, Mapping):
        until = f", until {waiting['deadline']}" if waiting.get("deadline") else ""
        what = f"event {waiting['event_type']}"
        if waiting.get("approval_id"):
            what = f"approval {waiting['approval_id']}"
        elif waiting.get("callback_url"):
            what = f"a call to {waiting['callback_url']}"
        rows.append(("waiting", f"at node {waiting['node_id']} for {what}{until}"))
    elif document.get("woken") and document.get("status") in ("suspended", "running"):
        rows.append(("waiting", f"no more: woken by {document['woken']}, to be gone on with"))
    if isinstance(cancelled, Mapping):
        rows.append(("cancel", f"{cancelled['state']}: {cancelled['reason'] or 'no reason given'}"))
    return rows


@contextmanager
def _spinner(text: str, *, quiet: bool) -> Iterator[None]:
    """Something that moves while one waits: on a terminal only, on stderr."""
    err = console(stderr=True)
    if quiet or not err.is_terminal:
        yield
        return
    with err.status(text):
        yield


def start(
    session: Session,
    flow_id: Annotated[str, typer.Argument(metavar="FLOW_ID")],
    given: Annotated[str | None, typer.Option("--input", metavar="JSON|@FILE|-", help="The input; default: {}")] = None,
    version: Annotated[str | None, typer.Option("--version", metavar="V", help="Default: the latest")] = None,
    execution_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Default: a new one")] = None,
    dedup_key: Annotated[
        str | None, typer.Option("--dedup-key", metavar="K", help="A second start with it answers the first execution")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="INSTANCE", help="Run it there; anywhere, once that one is gone")
    ] = None,
    wait_for_end: Annotated[bool, typer.Option("--wait", help="Wait for its end and show it")] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Put an execution of a stored flow in the queue.

    Example: plaita start order --input '{"id": 17}' --wait --timeout 60
    """
    from plaita.client import operations

    if timeout is not None and not wait_for_end:
        raise InputError("--timeout belongs to --wait; give both")
    operations.check_timeout(timeout)  # before anything is started
    value = read_json(given, "--input", {})
    started = session.perform(
        operations.start,
        flow_id,
        value,
        version=version,
        execution_id=execution_id,
        dedup_key=dedup_key,
        target=target,
        family=session.client.family,
    )
    if wait_for_end:
        note(started.execution_id)
        _wait(session, [started.execution_id], timeout)
        return
    if session.json:
        answer: dict[str, Any] = {
            "execution_id": started.execution_id,
            "flow_id": started.flow_id,
            "tenant_id": started.tenant_id,
            "message_id": started.message_id or None,
        }
        if started.deduplicated:
            answer |= {"deduplicated": True, "status": started.status}
        print_json(answer)
        return
    suffix = f" (started before with this key; {started.status})" if started.deduplicated else ""
    console().print(f"{started.execution_id}{suffix}")


def show(
    session: Session,
    execution_id: IdArgument,
) -> None:
    """One execution: status, input, output, error, waits, nodes.

    The nodes are in the order they ran.

    Example: plaita show 4f0c --json
    """
    from plaita.client import operations

    document = session.perform(operations.get, execution_id)
    if session.json:
        print_json(document)
    else:
        print_execution(document, session.perform(operations.now_ms))


def list_command(
    session: Session,
    status: Annotated[str | None, typer.Option("--status", metavar="S", help="pending, running, completed ...")] = None,
    flow: Annotated[str | None, typer.Option("--flow", metavar="F", help="Of this flow only")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many")] = 50,
) -> None:
    """Executions, the newest first.

    With --status suspended: what each waits for.

    Example: plaita list --status error --limit 20
    """
    from plaita.client import operations

    found = session.perform(operations.list_executions, status, flow, limit)
    if session.json:
        print_json(found)
        return
    columns, cells = (_WAITS, _wait_cells) if status == "suspended" else (_LISTED, _listed_cells)
    rows = [
        (one["execution_id"], f"{one['flow_id']} {one['version']}", one["status"], *cells(one))
        for one in found["executions"]
    ]
    console().print(table(("execution", "flow", "status", *columns), rows))
    note(f"{len(rows)} of {found['total']}")


_LISTED = ("last node", "created", "updated")
_WAITS = ("at node", "waits for", "since", "until")


def _listed_cells(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["last_node_id"], one["created_at"], one["last_update_time"]


def _wait_cells(one: Mapping[str, Any]) -> tuple[Any, ...]:
    waiting = one["waiting"]
    if waiting is None:
        return one["last_node_id"], f"no more: woken by {one['woken']}" if one["woken"] else None, None, None
    return waiting["node_id"], waiting["event_type"], waiting["since"], waiting["deadline"]


def wait(
    session: Session,
    execution_ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    timeout: TimeoutOption = None,
) -> None:
    """Wait until executions have ended. Exit codes: 0 all completed, 1 one ended otherwise, 4 timed out.

    Example: plaita wait 4f0c 7a1b --timeout 300
    """
    _wait(session, execution_ids, timeout)


def _wait(session: Session, execution_ids: list[str], timeout: float | None) -> None:
    from plaita.client import operations

    waiting = f"waiting for {execution_ids[0]}" if len(execution_ids) == 1 else f"waiting for {len(execution_ids)}"
    try:
        with _spinner(waiting, quiet=session.json):
            documents = session.perform(operations.wait, execution_ids, timeout)
    except WaitTimeoutError as error:
        exits.complain("plaita", [str(error)])
        documents = [session.perform(operations.get, execution_id) for execution_id in execution_ids]
        _print_documents(session, documents)
        raise typer.Exit(exits.TIMED_OUT) from None
    _print_documents(session, documents)
    raise typer.Exit(ended_code(documents))


def _print_documents(session: Session, documents: list[dict[str, Any]]) -> None:
    from plaita.client import operations

    if session.json:
        print_json(documents[0] if len(documents) == 1 else {"executions": documents})
    elif len(documents) == 1:
        print_execution(documents[0], session.perform(operations.now_ms))
    else:
        rows = [(one["execution_id"], one["flow_id"], one["status"], one["ended_at"]) for one in documents]
        console().print(table(("execution", "flow", "status", "ended"), rows))


def resume(
    session: Session,
    execution_id: IdArgument,
    resume_type: Annotated[
        str, typer.Option("--type", metavar="T", help="event, timeout, continue or retry", show_default=False)
    ],
    data: Annotated[
        str | None, typer.Option("--data", metavar="JSON|@FILE|-", help="What the event brings, at most 64 KiB")
    ] = None,
    unblock: Annotated[bool, typer.Option("--unblock", help="With retry: its limits count anew")] = False,
) -> None:
    """Move an execution on: event, timeout, continue or retry.

    Wake it with an event or its timeout, continue it, or retry one that ended in error.

    Exit codes: 0 it goes on, or there was nothing to do (it has ended, it is being run, it waits for an event);
    1 refused, the reason on stderr.

    Example: plaita resume 4f0c --type event --data '{"approved": true}'
    """
    from plaita.client import resuming

    value = read_json(data, "--data")
    family = session.client.family
    answer = session.perform(resuming.resume, execution_id, resume_type, value, family, unblock=unblock)
    if session.json:
        print_json(answer)
    if answer["resumed"]:
        if not session.json:
            console().print(f"{answer['execution_id']}: {resume_type} is on its way; it is {answer['status']}")
        return
    line = f"{answer['execution_id']} is {answer['status']}: {answer['reason']}: {_why(answer)}"
    if answer["reason"] not in resuming.HARMLESS:
        exits.complain("plaita", [line])
        raise typer.Exit(exits.FAILED)
    if session.json:
        note(line)
    else:
        console().print(line)


def _why(answer: Mapping[str, Any]) -> str:
    from plaita.client import resuming

    why = resuming.EXPLANATIONS.get(str(answer["reason"]), "")
    if answer.get("counter_key"):
        return f"{why}; find out why it fails, then retry with --unblock, which deletes {answer['counter_key']}"
    return f"{why} (hash {answer['flow_hash']})" if answer.get("flow_hash") else why


def cancel(session: Session, execution_id: IdArgument, reason: ReasonOption = "") -> None:
    """Ask an execution to end. One that has ended is left as it is, and that is no error. How far it is, `show` tells:
    requested, signalled (the running step is asked to stop), stopped.

    Example: plaita cancel 4f0c --reason "wrong input"
    """
    from plaita.client import resuming

    answer = session.perform(resuming.cancel, execution_id, reason, session.client.family)
    if session.json:
        print_json(answer)
        return
    if answer["cancel_requested"]:
        console().print(f"{answer['execution_id']}: cancel requested; it is {answer['status']}")
    else:
        console().print(f"{answer['execution_id']}: nothing to cancel; it is {answer['status']} already")


def rm(
    session: Session,
    execution_id: IdArgument,
    reason: ReasonOption = "",
    force: Annotated[bool, typer.Option("--force", help="Even when it is running")] = False,
) -> None:
    """Delete an execution for good; its id is not used again. A running one is refused without --force.

    Example: plaita rm 4f0c --reason "test data"
    """
    from plaita.client import operations

    kept = session.retention
    lifetime = tombstone_ttl_ms(
        kept.execution_tombstone_ttl_seconds, kept.execution_state_ttl_days, kept.task_max_age_seconds
    )
    answer = session.perform(operations.remove_execution, execution_id, reason, force, lifetime)
    if session.json:
        print_json(answer)
        return
    console().print(f"{answer['execution_id']}: {'deleted' if answer['existed'] else 'was deleted before'}")

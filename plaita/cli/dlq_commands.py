"""``plaita dlq``: what could not be run, to be looked at, brought back, emptied. The stream is the platform's: it holds
the letters of all tenants."""

from __future__ import annotations

import os
import pwd
import re
import socket
from typing import Annotated, Any

import typer

from plaita.cli import exits
from plaita.cli.options import Session, new_app, with_session
from plaita.cli.output import console, facts, json_text, note, print_json, table
from plaita.clock import wall_ms
from plaita.errors import InputError
from plaita.policy.age import timestamp_ms

app = new_app("dlq", "The dead letters: what could not be run.\n\nExample: plaita dlq list")

_COLUMNS = ("dlq_id", "dead_lettered_at", "cause", "execution_id", "flow_id", "node_id", "attempts", "reason")
_HEADINGS = ("id", "since", "cause", "execution", "flow", "node", "attempts", "reason")


@app.command("list")
@with_session
def list_command(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many")] = 50,
) -> None:
    """Dead letters, the newest first.

    Of all tenants, or of the one that is named (--tenant, PLAITA_TENANT).

    Example: plaita dlq list --json
    """
    from plaita.client import operations

    found = session.perform(operations.list_dead_letters, limit, session.named_tenant)
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

    document = session.perform(operations.get_dead_letter, dlq_id, session.named_tenant)
    if session.json:
        print_json(document)
        return
    rows = [
        (name.replace("_", " "), value if isinstance(value, str | int | None) else json_text(value))
        for name, value in document.items()
    ]
    console().print(facts(rows))


_AGO = re.compile(r"([0-9]{1,9})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHOWN = 50  # letters named one by one to a person


@app.command("replay")
@with_session
def replay(
    session: Session,
    dlq_ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", show_default=False)] = None,
    match_reason: Annotated[
        str | None, typer.Option("--match-reason", metavar="TEXT", help="Whose reason holds this text")
    ] = None,
    cause: Annotated[str | None, typer.Option("--cause", metavar="C", help="Of this cause, e.g. SIGKILL")] = None,
    flow: Annotated[str | None, typer.Option("--flow", metavar="F", help="Of this flow")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="N", help="Of this node")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="T", help="From then on: ISO 8601, or 90s, 30m, 2h, 7d ago")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="T", help="Up to then; as --since")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them")] = False,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="Replay at most so many")] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="Why; stands in the audit")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count, by reason, flow and node")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also what was replayed in the last 7 days, or is over the age limit")
    ] = False,
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="At most so many a second; 0: no limit")] = 100.0,
) -> None:
    """Bring dead letters back, named or by filter.

    Those named, or all that match the filters, the oldest first.

    Each goes once in 7 days and stays in the list; run again, it goes on where it stopped. What ended its execution in
    error is brought back as a retry. Exit codes: 0 all of them are back (or were), 1 some could not be, see why.

    Example: plaita dlq replay --cause SIGKILL --since 2h --dry-run
    """
    from plaita.client.replaying import DONE, Manner, Wanted, explain
    from plaita.client.replaying import replay as bring_back

    wanted = Wanted(
        dlq_ids=tuple(dlq_ids or ()),
        reason=match_reason,
        cause=cause,
        flow_id=flow,
        node_id=node,
        since_ms=_moment(since, "--since"),
        until_ms=_moment(until, "--until"),
        limit=limit,
        everything=everything,
    )
    manner = Manner(
        tenant=session.named_tenant,
        by=_me(),
        why=reason,
        force=force,
        dry_run=dry_run,
        rate=rate,
        max_age_ms=session.retention.task_max_age_seconds * 1000,
    )
    answer = session.perform(bring_back, wanted, manner)
    failed = sum(count for word, count in answer["outcomes"].items() if word not in {one.value for one in DONE})
    if session.json:
        print_json(answer)
    else:
        _print_replay(answer)
    for word in answer["outcomes"]:
        if word != "replayed":
            note(f"{word}: {explain(word)}")
    if answer["more"]:
        note("there are more; the same command goes on with them")
    if failed and not dry_run:
        raise typer.Exit(exits.FAILED)


def _print_replay(answer: dict[str, Any]) -> None:
    out = console()
    said = {"replayed": "would be replayed"} if answer["dry_run"] else {}
    rows = [
        (
            one["count"],
            one["cause"],
            one["flow_id"],
            one["node_id"],
            ", ".join(f"{said.get(word, word)} {count}" for word, count in one["outcomes"].items()),
            one["reason"],
        )
        for one in answer["groups"]
    ]
    out.print(table(("count", "cause", "flow", "node", "outcome", "reason"), rows))
    if not answer["dry_run"]:
        shown = [one for one in answer["entries"] if one["outcome"] != "already_replayed"][:_SHOWN]
        named = ("dlq_id", "outcome", "execution_id", "enqueued_as", "detail")
        out.print(
            table(("id", "outcome", "execution", "as", "detail"), [[one[name] for name in named] for one in shown])
        )


def _moment(text: str | None, what: str) -> int | None:
    """Epoch ms of ISO 8601 or of a time ago."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return wall_ms() - int(ago[1]) * _UNIT_MS[ago[2]]
    found = timestamp_ms(text)
    if found is None:
        raise InputError(
            f"{what}: {text!r} is no time; right is 2026-11-30T08:00:00Z, or 90s, 30m, 2h, 7d for a time ago"
        )
    return found


def _me() -> str:
    """Who runs this command, for the audit: the user of this machine."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


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
    if session.named_tenant is not None:
        raise InputError("purge takes the letters of all tenants, so it is not for one: leave --tenant out")
    answer = session.perform(operations.purge_dead_letters)
    if session.json:
        print_json(answer)
    else:
        console().print(f"{answer['purged']} dead letters taken away")

"""``plaita doctor``: what is wrong with this installation, how bad it is, and what to do next."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plaita.cli import exits
from plaita.cli.options import Session, with_session
from plaita.cli.output import console, print_json, printable

if TYPE_CHECKING:
    from plaita.client.doctor import Seen
    from plaita.policy.doctor import Finding, Severity

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


def register(app: typer.Typer) -> None:
    """Add the command of this module to ``plaita``."""
    app.command("doctor")(with_session(doctor))


def doctor(
    session: Session,
    socket: Annotated[
        str | None,
        typer.Option("--socket", metavar="PATH", help="A supervisor's control socket besides the usual ones"),
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Leave out what is ok")] = False,
) -> None:
    """Say what is wrong with server, host, queue and executions.

    And what to do about it. Changes nothing: run it any time.

    Exit codes: 0 nothing worse than a note, 1 warnings or errors, 2 bad usage, 3 the server cannot be reached (what
    can be seen without it is shown all the same).

    Example: plaita doctor --tenant acme --json
    """
    from plaita.cli import doctor_host
    from plaita.clock import iso_utc, wall_ms
    from plaita.policy.doctor import host, units, worst
    from plaita.policy.doctor.finding import ordered
    from plaita.unix import looking

    config = session.config  # a wrong address is bad usage: told before anything is looked at
    began, swapped = time.monotonic(), looking.swapped_in()
    wanted = doctor_host.supervisor_settings(config.redis_url if config.embedded is None else None, config.embedded)
    seen = _look_at_redis(session, wanted)
    facts = doctor_host.look(wanted, socket, os.environ, swapped, began, seen.folder)
    agrees = any(one.check == "redis.clock" and one.severity.value == "ok" for one in seen.findings)
    facts = dataclasses.replace(facts, server_agrees=agrees)
    findings = ordered(
        [*seen.findings, *host.judge(facts), *units.judge(doctor_host.unit_facts(wanted.config, facts.supervisors))]
    )
    gravest = worst(findings)
    if session.json:
        print_json(
            {
                "worst": gravest.value,
                "findings": [finding.as_dict() for finding in findings],
                "reachable": seen.reachable,
                "server": seen.server,
                "tenant_id": config.tenant,
                "queue": config.queue_name,
                "host": os.uname().nodename,
                "at": iso_utc(wall_ms()),
                "calls": seen.calls,
            }
        )
    else:
        _show(findings, gravest, brief=brief)
    if not seen.reachable:
        raise typer.Exit(exits.UNREACHABLE)
    raise typer.Exit(exits.FAILED if gravest.value in ("warning", "error") else exits.DONE)


def _look_at_redis(session: Session, wanted: Any) -> Seen:
    import plaita
    from plaita.cli import doctor_host
    from plaita.client import doctor as asking
    from plaita.policy.doctor import reachable
    from plaita.runtime_config import config_family, load_tenant_config
    from plaita.store.embedded import running_url
    from plaita.store.endpoint import parse_endpoint
    from plaita.store.keys import Keys, check_tenant
    from plaita.store.looking import LookingRunner
    from plaita.unix import looking

    config, told = session.config, wanted.config
    keys = Keys(
        config.key_prefix, check_tenant(config.tenant), config.queue_name, config.consumer_group, config.dlq_key
    )
    url = config.redis_url if config.embedded is None else running_url(config.embedded)
    if url is None:  # an embedded server is not started for being looked at
        shown = f"embedded server in {config.embedded}"
        found = reachable.not_started(shown, str(config.embedded))
        return asking.Seen(False, [found], {"url": shown, "product": None, "version": None, "role": None})
    tenants = load_tenant_config(flags=session.flags)
    session.tell(tenants)
    endpoint = parse_endpoint(url)
    shown = endpoint.shown
    local = doctor_host.is_local(shown)
    settings = asking.Settings(
        shown=shown,
        user=endpoint.username or "default",
        lease_ttl_s=120.0 if told is None else float(told.lease_ttl_seconds),
        claim_min_idle_s=60.0 if told is None else told.claim_min_idle_ms / 1000,
        dlq_max_len=1000 if told is None else told.dlq_max_len,
        expected_epoch=tenants.deployment_epoch or "",
        own_version=plaita.__version__,
        own_family=config_family(config) if "consumer_group" in config.sources else "",
        local=local,
        overcommit=looking.overcommit() if local else None,
        huge_pages=looking.huge_pages() if local else None,
    )
    with LookingRunner(url, name="plaita-doctor") as runner:
        return asking.look(runner, keys, settings)


# -- for people -----------------------------------------------------------------------------------


def _show(findings: Sequence[Finding], gravest: Severity, *, brief: bool) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    made.add_column("severity", no_wrap=True)
    made.add_column("check", no_wrap=True)
    made.add_column("seen, why it matters, next action", overflow="fold")
    counts: dict[str, int] = {}
    for finding in findings:
        word = finding.severity.value
        counts[word] = counts.get(word, 0) + 1
        if word == "ok" and brief:
            continue
        text = Text(printable(finding.value))
        if word != "ok":
            if finding.wanted:
                text.append(f" (wanted: {printable(finding.wanted)})", style="dim")
            text.append(f"\n{printable(finding.why)}")
            if finding.action:
                text.append(f"\n→ {printable(finding.action)}", style="bold")
        made.add_row(Text(word, style=_STYLES[word]), Text(finding.check), text)
    out = console()
    out.print(made)
    order = ("error", "warning", "note", "ok")
    shown = ", ".join(f"{counts[word]} {word}" for word in order if word in counts)
    out.print(Text(f"worst: {gravest.value} ({shown})", style=_STYLES[gravest.value]))

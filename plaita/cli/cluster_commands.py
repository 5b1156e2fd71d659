"""``plaita cluster``: all hosts at a glance, and where their settings differ (ledger C2, G1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from plaita.cli.options import Session, new_app, with_session
from plaita.cli.output import console, json_text, note, print_json, printable, table

if TYPE_CHECKING:
    from rich.console import Console

app = new_app(
    "cluster", "The hosts: who is there, and by which settings they work.\n\nExample: plaita cluster instances"
)

_GENERATIONS = ("config_family", "config_generation", "budget_generation")
_SHORT = 9  # characters of a generation where whole ones make a row too wide; ``config`` has the whole


@app.command("instances")
@with_session
def instances(session: Session) -> None:
    """Supervisors and library workers, and how they are.

    Each that is registered, or died within a day, with what it said of itself last.

    state: alive; stale (more than two heartbeats late: frozen, or cut off); dead (gone without a word); stopped.

    Example: plaita cluster instances --json
    """
    from plaita.client import cluster

    found = session.perform(cluster.instances)
    if session.json:
        print_json(found)
        return
    out = console()
    columns = (
        "instance",
        "state",
        "status",
        "shut",
        "host",
        "pid",
        "version",
        "up",
        "busy",
        "seen",
        "family",
        "config",
        "budget",
    )
    rows = [
        (
            one["instance_id"],
            one["state"],
            one["status"],
            ", ".join(one["shut"]) or None,
            one["host"],
            one["pid"],
            one["version"],
            _duration(one["uptime_s"]),
            None if one["executors"] is None else f"{one['busy']}/{one['executors']}",
            f"{_duration(one['heartbeat_age_s'])} ago",
            *((one["generations"][name] or "-")[:_SHORT] for name in _GENERATIONS),
        )
        for one in found["instances"]
    ]
    out.print(table(columns, rows))
    if not rows:
        note("no instance is registered")
    _print_differences(out, found["mixed"])


@app.command("config")
@with_session
def config(
    session: Session,
    instance: Annotated[str | None, typer.Argument(metavar="INSTANCE", help="One alone", show_default=False)] = None,
) -> None:
    """The settings of each living host, and what differs.

    Those in force, with their three generations.

    Example: plaita cluster config host1
    """
    from plaita.client import cluster

    found = session.perform(cluster.config, instance)
    if session.json:
        print_json(found)
        return
    out = console()
    hosts = found["instances"]
    columns = ("instance", "state", "version", *_GENERATIONS)
    rows = [
        (one["instance_id"], one["state"], one["version"], *(one["generations"][name] for name in _GENERATIONS))
        for one in hosts
    ]
    out.print(table(columns, rows))
    if not hosts:
        note("no instance is registered")
        return
    for title, pairs in _settings(hosts):
        out.print(table(("setting", "value"), pairs, title=title))
    _print_differences(out, found["differences"])
    _print_differences(out, found["mixed"])


def _settings(hosts: list[dict[str, Any]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """What is the same everywhere once, then the rest by host."""
    configs = {one["instance_id"]: one["config"] for one in hosts if one["config"] is not None}
    if not configs:
        return []
    first = next(iter(configs.values()))
    same = {
        name: value
        for name, value in first.items()
        if all(name in config and config[name] == value for config in configs.values())
    }
    tables = [("the same on all of them" if len(configs) > 1 else next(iter(configs)), _pairs(same))]
    for host, config in configs.items():
        rest = _pairs({name: value for name, value in config.items() if name not in same})
        if rest:
            tables.append((f"{host} only", rest))
    return tables


def _pairs(config: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, value if isinstance(value, str) else json_text(value)) for name, value in sorted(config.items())]


def _print_differences(out: Console, differences: list[dict[str, Any]]) -> None:
    for one in differences:
        values = "; ".join(
            f"{value['value'] if isinstance(value['value'], str) else json_text(value['value'])} on "
            f"{', '.join(value['instances'])}"
            for value in one["values"]
        )
        advice = f" ({one['advice']})" if one.get("advice") else ""
        out.print(printable(f"{one['name']} differs: {values}{advice}"), soft_wrap=True)


def _duration(seconds: float | None) -> str | None:
    """Short, for a column: the largest two units."""
    if seconds is None:
        return None
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"

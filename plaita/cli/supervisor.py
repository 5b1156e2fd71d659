"""``plaita-supervisor``: starts the daemon of a host, and asks a running one. Parses and prints; decides nothing.

Flags of ``run`` arrive as texts and are judged by ``runtime_config`` together with environment and file, so that every
fault is told at once and in one form. Plug-ins are never imported here: this process becomes the supervisor.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plaita.cli import exits, status_view
from plaita.cli.control_client import DEFAULT_TIMEOUT_SECONDS, ask, find_socket
from plaita.cli.drain_waiting import wait_for_drain
from plaita.cli.output import console, facts, note, page_console, print_json, table
from plaita.clock import wall_ms
from plaita.errors import ConfigError, InputError, PlaitaError, WaitTimeoutError
from plaita.runtime_config import Setting, SupervisorConfig, effective, generations, load_runtime_config, settings_of
from plaita.unix.prctl import set_dumpable
from plaita.unix.processes import ensure_std_fds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from plaita.policy.process_end import ProcessEnd

PROGRAM = "plaita-supervisor"
_WATCH_SECONDS = 1.0
_WATCH_PATIENCE_SECONDS = 5.0  # a supervisor that is frozen is shown as such soon
_RECORD_SECONDS = 5.0

app = typer.Typer(
    name=PROGRAM,
    help="Runs the flows of this host, and tells how it goes.\n\nExample: plaita-supervisor run --embedded ./data",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

SocketOption = Annotated[
    str | None, typer.Option("--socket", metavar="PATH", help="The supervisor's control socket [env: PLAITA_SOCKET]")
]
InstanceOption = Annotated[
    str | None, typer.Option("--instance", metavar="NAME", help="Use /run/plaita-NAME/supervisor.sock")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document")]
TimeoutOption = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for an answer")]


# -- run and check ------------------------------------------------------------------------------------


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    """One setting as a parameter that typer understands. Values stay texts: ``runtime_config`` judges them."""
    flag = str(setting.flag)
    described = f"{setting.about} [env: {setting.environment[0]}]"
    annotation: Any
    if setting.switch:
        annotation, default = bool, typer.Option(False, flag, help=described)
    elif name == "preload":
        annotation, default = list[str], typer.Option([], flag, metavar="MODULE", help=described)
    else:
        metavar = {"redis_url": "URL", "embedded": "DIR", "socket": "PATH"}.get(name, "VALUE")
        annotation, default = str | None, typer.Option(None, flag, metavar=metavar, help=described)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option a setting that has a flag, after its own; they arrive as ``**settings``."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
    named = [_parameter(n, s) for n, s in settings_of(SupervisorConfig).items() if s.flag is not None]
    command.__signature__ = inspect.Signature([*own, *named])  # type: ignore[attr-defined]
    return command


def _flags(settings: dict[str, Any]) -> dict[str, Any]:
    """What was really said on the command line: a switch that was not given is not a "no"."""
    known = settings_of(SupervisorConfig)
    flags: dict[str, Any] = {}
    for name, value in settings.items():
        if known[name].switch:
            flags[name] = (not known[name].inverted) if value else None
        else:
            flags[name] = value or None if name == "preload" else value
    return flags


def _load(settings: dict[str, Any], file: str | None) -> SupervisorConfig:
    try:
        return load_runtime_config("worker", flags=_flags(settings), file=file)
    except ConfigError as error:
        exits.complain(PROGRAM, error.faults)
        raise typer.Exit(exits.CONFIGURATION) from None


ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="TOML file; default: /etc/plaita/plaita.toml [env: PLAITA_CONFIG]"),
]


@app.command()
@_with_settings
def run(
    *,
    config: ConfigOption = None,
    check_only: Annotated[bool, typer.Option("--check", help="Validate, print the effective settings, exit")] = False,
    **settings: Any,
) -> None:
    """Run the supervisor of this host until it is told to stop.

    Exit codes: 0 clean; 75 a stop that had to kill work; 78 wrong settings, or another supervisor is there; 70 a bug.

    Example: plaita-supervisor run --embedded ./data --executors 4 --preload my_nodes
    """
    if check_only:
        _print_check(_load(settings, config), as_json=False)
        return
    ensure_std_fds()
    set_dumpable(False)  # before any secret is read: node code of the same user must not read this process
    judged = _load(settings, config)
    from plaita.supervisor.main import run as run_supervisor

    raise typer.Exit(run_supervisor(judged))


@app.command()
@_with_settings
def check(*, config: ConfigOption = None, json_output: JsonOption = False, **settings: Any) -> None:
    """Validate and print the settings that `run` would use.

    With their generations, secrets masked.

    Example: plaita-supervisor check --config /etc/plaita/plaita.toml --json
    """
    _print_check(_load(settings, config), as_json=json_output)


def _print_check(config: SupervisorConfig, *, as_json: bool) -> None:
    shown, ids = effective(config), dataclasses.asdict(generations(config))
    for warning in config.warnings:
        exits.complain(PROGRAM, [f"warning: {warning}"])
    if as_json:
        document = {"settings": shown, "sources": config.sources, "generations": ids, "warnings": list(config.warnings)}
        print_json(document)
        return
    rows = [(name, value, config.sources.get(name, "default")) for name, value in shown.items()]
    out = console()
    out.print(table(("setting", "value", "source"), rows))
    out.print(facts(ids.items()))


@app.command("record-exit")
@_with_settings
def record_exit(
    *,
    config: ConfigOption = None,
    exit_code: Annotated[
        str | None, typer.Option("--exit-code", metavar="HOW", help="exited, killed or dumped [env: EXIT_CODE]")
    ] = None,
    exit_status: Annotated[
        str | None, typer.Option("--exit-status", metavar="VALUE", help="Status or signal [env: EXIT_STATUS]")
    ] = None,
    **settings: Any,
) -> None:
    """Tell Redis how the supervisor of this host ended.

    For systemd's ExecStopPost=; with the settings of `run`.

    Writes only what is no normal end (not exit 0, 75 or 78). Exits with 0 when Redis is away: stderr says so.

    Example: plaita-supervisor record-exit --exit-code killed --exit-status SIGKILL
    """
    from plaita.policy.process_end import read_end

    how, value = exit_code or os.environ.get("EXIT_CODE"), exit_status or os.environ.get("EXIT_STATUS")
    result = os.environ.get("SERVICE_RESULT") or None
    if not how or not value:
        if result is None:
            raise InputError("record-exit needs --exit-code and --exit-status (systemd sets EXIT_CODE, EXIT_STATUS)")
        note("not recorded: the service had no main process")
        return
    end = read_end(how, value)
    if end.abnormal:
        _record_exit(_load(settings, config), end, result)


def _record_exit(config: SupervisorConfig, end: ProcessEnd, result: str | None) -> None:
    """In a thread, since looking up a host name has no time limit of its own, and the unit waits for this program."""
    from plaita.supervisor.record_exit import record_exit as record

    told: list[str] = []

    def work() -> None:
        try:
            told.append(record(config, end, result, os.environ.get("INVOCATION_ID")))
        except PlaitaError as error:
            told.append(f"not recorded: {error}")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_RECORD_SECONDS)
    for line in told or [f"not recorded: Redis did not answer within {_RECORD_SECONDS:g} s"]:
        if line:
            exits.complain(PROGRAM, [line])


# -- asking a running one -------------------------------------------------------------------------------


def _ask(
    command: str, socket: str | None, instance: str | None, timeout: float = DEFAULT_TIMEOUT_SECONDS, **arguments: Any
) -> dict[str, Any]:
    return ask(find_socket(socket, instance, os.environ), command, timeout=timeout, **arguments)


@app.command()
def status(
    socket: SocketOption = None,
    instance: InstanceOption = None,
    json_output: JsonOption = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every second until Ctrl-C, also through a restart")
    ] = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """What the supervisor of this host is doing. Exit codes: 0 serving, 1 degraded, 3 not running.

    Example: plaita-supervisor status --json
    """
    if watch and json_output:
        raise InputError("--watch and --json exclude each other: --json prints one document")
    if watch:
        raise typer.Exit(_watch(socket, instance, timeout))
    answer = _ask("status", socket, instance, timeout)
    if json_output:
        print_json(answer)
    else:
        from plaita.cli.status_page import page

        out = page_console()
        _print_lines(out, page(answer, out.width, wall_ms()))
    if not status_view.serves_well(answer):
        raise typer.Exit(exits.FAILED)


def _print_lines(out: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        out.print(line, soft_wrap=True)


def _watch(socket: str | None, instance: str | None, timeout: float) -> int:
    """Once a supervisor was seen, that one's socket is meant to the end."""
    from plaita.cli.watching import Watch

    found: list[str] = []

    def look() -> dict[str, Any]:
        path = found[0] if found else find_socket(socket, instance, os.environ)
        answer = ask(path, "status", timeout=min(timeout, _WATCH_PATIENCE_SECONDS))
        found[:] = [path]
        return answer

    find_socket(socket, instance, os.environ)  # what is wrong with the words themselves is told at once
    return Watch(look, page_console(), _WATCH_SECONDS).run()


@app.command()
def explain(socket: SocketOption = None, instance: InstanceOption = None, json_output: JsonOption = False) -> None:
    """Why this host takes work, or does not.

    Every gate, since when, and what to do.

    Example: plaita-supervisor explain
    """
    answer = _ask("explain", socket, instance)
    if json_output:
        print_json(answer)
        return
    from plaita.cli.status_page import explain_page

    out = page_console()
    _print_lines(out, explain_page(answer, out.width, wall_ms()))


@app.command()
def executors(socket: SocketOption = None, instance: InstanceOption = None, json_output: JsonOption = False) -> None:
    """The executor processes and the steps they are at.

    Example: plaita-supervisor executors --json
    """
    answer = _ask("executors", socket, instance)
    if json_output:
        print_json(answer)
        return
    from plaita.cli.status_page import executor_table

    out = page_console()
    _print_lines(out, executor_table(status_view.rows_of(answer, "executors"), out.width))


@app.command()
def drain(
    socket: SocketOption = None,
    instance: InstanceOption = None,
    json_output: JsonOption = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when no step is left, with a receipt")] = False,
    deadline: Annotated[
        float | None, typer.Option("--deadline", metavar="SECONDS", help="Kill what still runs then", min=0)
    ] = None,
) -> None:
    """Take no new work and hand the running executions on.

    The supervisor stays; `undrain` takes it back.

    Example: plaita-supervisor drain --wait --deadline 60
    """
    if deadline is not None and not math.isfinite(deadline):
        raise InputError(f"--deadline: {deadline:g} is no number of seconds")
    before = _ask("status", socket, instance)
    answer = _ask("drain", socket, instance, deadline=deadline)
    if not wait:
        _tell(answer, "draining: no new work is taken", json_output)
        return
    after = wait_for_drain(lambda: _ask("status", socket, instance))
    receipt = status_view.receipt(before, after)
    if json_output:
        print_json({"drained": True, **receipt})
        return
    console().print(facts((name.replace("_", " "), count) for name, count in receipt.items()))


@app.command()
def undrain(socket: SocketOption = None, instance: InstanceOption = None, json_output: JsonOption = False) -> None:
    """Take work again after ``drain``. Refused while the supervisor is stopping.

    Example: plaita-supervisor undrain
    """
    _tell_of_work(_ask("undrain", socket, instance), json_output)


@app.command()
def pause(socket: SocketOption = None, instance: InstanceOption = None, json_output: JsonOption = False) -> None:
    """Take no new work for now; running executions go on. Forgotten at a restart.

    Example: plaita-supervisor pause
    """
    _tell(_ask("pause", socket, instance), "paused: running executions go on, no new ones are taken", json_output)


@app.command()
def resume(socket: SocketOption = None, instance: InstanceOption = None, json_output: JsonOption = False) -> None:
    """Take work again after ``pause``.

    Example: plaita-supervisor resume
    """
    _tell_of_work(_ask("resume", socket, instance), json_output)


@app.command()
def reload(
    socket: SocketOption = None,
    instance: InstanceOption = None,
    json_output: JsonOption = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when every executor is new")] = False,
    timeout: TimeoutOption = 60.0,
) -> None:
    """Take up changed node code; nothing is lost.

    Replaces the template and the executors one by one.

    Example: plaita-supervisor reload --wait
    """
    if not wait:
        timeout = 0.0
    answer = _ask("reload", socket, instance, timeout + DEFAULT_TIMEOUT_SECONDS, wait=wait, within=timeout)
    unfinished = answer.get("unfinished")
    if unfinished:
        raise WaitTimeoutError(f"not done within {timeout:g} s: {unfinished}; it goes on")
    _tell(answer, "reloaded" if wait else "reloading", json_output)


def _tell_of_work(answer: dict[str, Any], as_json: bool) -> None:
    """One reason less to take none; another may keep it away still."""
    sentence = "taking work again" if answer.get("serving", True) else str(answer.get("answer"))
    shown = answer if as_json else {name: value for name, value in answer.items() if name in ("status", "paused")}
    _tell(shown, sentence, as_json)


def _tell(answer: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    details = [(name, value) for name, value in answer.items() if not isinstance(value, (dict, list))]
    out = console()
    out.print(sentence)
    if details:
        out.print(facts(details))


def main(arguments: list[str] | None = None) -> None:
    """The ``plaita-supervisor`` program."""
    exits.speak_any_language()
    words = sys.argv[1:] if arguments is None else arguments
    usage = exits.CONFIGURATION if words[:1] == ["run"] else exits.USAGE
    sys.exit(exits.run_app(app, PROGRAM, words, usage=usage))


if __name__ == "__main__":
    main()

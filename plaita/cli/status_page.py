"""The screen of ``status``: what a person needs at three in the morning, first things first.

Dicts in, lines out; reads no clock and asks nobody. Every line fits the width; with too many for the height the least
urgent rows are left out, and it says how many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from plaita.cli.lines import cut, one_line, table_lines, wrapped
from plaita.cli.rates import Rates
from plaita.cli.status_view import part, rows_of, seconds, why
from plaita.cli.status_words import age, clock, count, gib, mib, short, since, time

_VERDICT_STYLES = {"serving": "bold green", "degraded": "bold yellow", "not serving": "bold red"}
_BAR = 20
_DEATHS = 5
_SERVERS = 5
_LOG_LINES_STUCK = 100  # waiting in the queue of the log's writer
_LABEL = 8

EXECUTOR_COLUMNS = ("slot", "execution", "flow", "node", "step", "usual", "MiB", "")
EXECUTOR_NUMBERS = "slot step usual MiB"
ALL_COLUMNS = ("slot", "pid", "state", "execution", "flow", "node", "step", "usual", "steps", "MiB", "restarts", "")
ALL_NUMBERS = "slot pid step usual steps MiB restarts"
DEATH_COLUMNS = ("ago", "slot", "cause", "execution", "node", "MiB")


def page(
    status: Mapping[str, Any], width: int, now_ms: int, *, height: int | None = None, rates: Rates | None = None
) -> list[Text]:
    """The whole screen. ``height`` None: as long as it is. ``rates``: of ``--watch``, None without."""
    head = _head(status, width, now_ms)
    head += _facts(status, width, now_ms)
    if rates is not None:
        head += _labelled("rates", rates.words(), width)
    deaths = _deaths(status, width, now_ms)
    room = None if height is None else max(3, height - len(head) - len(deaths) - 2)
    lines = [*head, Text(), *_executors(status, width, room), *deaths]
    return lines if height is None else lines[:height]


def gone_page(
    status: Mapping[str, Any] | None,
    why_not: str,
    width: int,
    now_ms: int,
    since_ms: int,
    seen_ms: int | None,
    *,
    title: str = "not running",
) -> list[Text]:
    """For while nobody answers: since when, why, and what was seen last."""
    lines = [_spread(Text(title, style="bold red"), clock(now_ms), width)]
    lines += wrapped(why_not, width)
    told = f"since {time(since_ms)} ({seconds((now_ms - since_ms) / 1000)}); it is tried again each second"
    lines += wrapped(told, width)
    if status is not None and seen_ms is not None:
        lines.append(Text())
        lines += wrapped(f"last seen at {time(seen_ms)}: {one_line(status.get('instance_id'))}, {why(status)}", width)
        working = sum(1 for one in rows_of(status, "executors") if one.get("execution_id"))
        lines += wrapped(f"it had {working} executions in work", width, "dim")
    return lines


def executor_table(executors: Sequence[Mapping[str, Any]], width: int) -> list[Text]:
    """Every executor with everything, for ``executors``."""
    rows = [
        (
            one.get("slot"),
            one.get("pid"),
            one.get("state"),
            one.get("execution_id"),
            one.get("flow_id"),
            one.get("node_id"),
            seconds(one.get("step_s")),
            seconds(one.get("usual_s")),
            one.get("steps_done"),
            mib(one.get("rss_mib")),
            one.get("restarts"),
            _mark(one),
        )
        for one in executors
    ]
    return table_lines(
        ALL_COLUMNS, rows, width, [_style(one) for one in executors], right=ALL_NUMBERS, whole="execution"
    )


def explain_page(explanation: Mapping[str, Any], width: int, now_ms: int) -> list[Text]:
    """The answer on top, then every gate; what is shut comes first, with what to do."""
    style = _VERDICT_STYLES.get(str(explanation.get("verdict")), "bold")
    lines = [*wrapped(why(explanation), width, style), Text()]
    gates = sorted(rows_of(explanation, "gates"), key=lambda gate: bool(gate.get("open")))
    shown = [cut(one_line(gate.get("gate")), 16) for gate in gates]
    names = max(map(cell_len, shown), default=0)
    for gate, name in zip(gates, shown, strict=True):
        is_open = bool(gate.get("open"))
        words = f"{one_line(gate.get('value')) or '-'}"
        words += (
            f", limit {one_line(gate.get('limit'))}" if gate.get("limit") not in (None, "", gate.get("value")) else ""
        )
        words += f"; since {since(gate.get('since'), now_ms)}" if gate.get("since") else ""
        waiting = gate.get("waiting")
        if waiting is None:
            words += "; how many carriers wait is not known"
        elif waiting or not is_open:
            words += f"; {one_line(waiting)} carrier{' waits' if waiting == 1 else 's wait'}"
        head = f"{'open' if is_open else 'SHUT'}  {name}{' ' * (names - cell_len(name))}  "
        margin = " " * (names + 8)
        room = max(10, width - len(margin))
        for index, line in enumerate(wrapped(words, room)):
            made = Text(margin if index else head, style="" if is_open else "bold red", no_wrap=True)
            lines.append(made.append(line.plain, style="not bold"))
        if gate.get("advice"):
            for line in wrapped(f"-> {one_line(gate.get('advice'))}", room, indent="   "):
                lines.append(Text(margin + line.plain, style="yellow", no_wrap=True))
    for one in rows_of(explanation, "stuck"):
        lines += wrapped(_stuck(one), width, "bold red", "       ")
    return lines


# -- parts --------------------------------------------------------------------------------------------


def _head(status: Mapping[str, Any], width: int, now_ms: int) -> list[Text]:
    state = one_line(status.get("status")) + (", paused" if status.get("paused") else "")
    who = (
        f"{one_line(status.get('instance_id'))}  {state}  pid {one_line(status.get('pid'))}"
        f"  up {seconds(status.get('uptime_s'))}  plaita {one_line(status.get('version'))}"
    )
    style = _VERDICT_STYLES.get(str(status.get("verdict")), "bold")
    return [_spread(Text(who, style="bold"), clock(now_ms), width), *wrapped(why(status), width, style), Text()]


def _facts(status: Mapping[str, Any], width: int, now_ms: int) -> list[Text]:
    queue, redis, drain = part(status, "queue"), part(status, "redis"), part(status, "drain")
    free = queue.get("claimable") or 0
    working = queue.get("pending")
    pending = f"{'?' if working is None else max(0, working - free)} in work"
    pending += f", {free} let go" if free else ""
    if queue.get("oldest_pending_s") is not None:
        pending += f" (oldest {seconds(queue.get('oldest_pending_s'))})"
    counts = (
        f"{count(queue, 'lag')} not yet read, {pending}, {count(queue, 'delayed')} delayed, "
        f"{count(queue, 'parked')} over a quota, {count(queue, 'dlq_length')} dead letters"
    )
    left = sum(queue.get(name) or 0 for name in ("other_family", "other_budget"))
    if left:
        counts += f", {left} left to hosts of other generations"
    if queue.get("denied_repo"):
        counts += f", {queue['denied_repo']} left to hosts that do not deny their repository"
    lines = _labelled("queue", f"{one_line(queue.get('name'))} (group {one_line(queue.get('group'))})", width)
    lines += _labelled("", counts, width, "yellow" if queue.get("dlq_length") else "")
    connected = bool(redis.get("connected"))
    words = f"{'connected' if connected else 'NOT connected'} since {since(redis.get('since'), now_ms)}"
    words += f", {one_line(redis.get('server'))}" if redis.get("server") else ""
    words += f", {one_line(redis.get('error'))}" if redis.get("error") else ""
    lines += _labelled("redis", words, width, "" if connected else "red")
    lines += _disk(part(status, "disk"), width, now_ms)
    if drain.get("phase") not in (None, "none"):
        lines += _labelled("drain", _drain(drain, now_ms), width, "yellow")
    reload = part(status, "reload")
    if reload.get("phase") not in (None, "none", "done"):
        lines += _labelled("reload", _reload(reload, now_ms), width, "red" if reload.get("reason") else "yellow")
    shut = [one_line(name) for name in status.get("shut") or []]
    if shut:
        lines += _labelled("shut", f"{', '.join(shut)}: see `plaita-supervisor explain`", width, "yellow")
    lines += _log(status, width)
    for one in rows_of(status, "breakers"):
        lines += _labelled("breaker", _breaker(one, now_ms), width, "yellow")
    for one in rows_of(status, "services"):
        lines += [line for words in _service(one, now_ms) for line in _labelled("service", words, width, "yellow")]
    if status.get("registry_registered") is False:
        lines += _labelled("registry", "not registered", width, "yellow")
    ids = part(status, "generations")
    template = part(status, "template")
    words = " ".join(one_line(value) for value in ids.values())
    if template.get("generation") is not None:
        words += f", template {one_line(template.get('generation'))}"
    return lines + _labelled("config", words, width, "dim")


def _stuck(one: Mapping[str, Any]) -> str:
    usual, limit = one.get("usual_s"), one.get("timeout_s")
    words = f"STUCK  execution {one_line(one.get('execution_id'))}, flow {one_line(one.get('flow_id'))}, "
    words += (
        f"at node {one_line(one.get('node_id'))} for {seconds(one.get('step_s'))} in slot {one_line(one.get('slot'))}"
    )
    words += "; what is usual there is not known" if usual is None else f"; usually {seconds(usual)}"
    return words + ("; it has no timeout" if limit is None else f"; its timeout was {seconds(limit)}")


def _reload(reload: Mapping[str, Any], now_ms: int) -> str:
    words = one_line(reload.get("phase"))
    words += f" since {since(reload.get('since'), now_ms)}" if reload.get("since") else ""
    left = reload.get("left")
    words += f", {one_line(left)} {'executor is' if left == 1 else 'executors are'} old still" if left else ""
    return words + (f": {one_line(reload.get('reason'))}" if reload.get("reason") else "")


def _log(status: Mapping[str, Any], width: int) -> list[Text]:
    """Nothing, unless lines were lost or so many wait that whatever takes them must be stuck."""
    waiting, dropped = _whole(status, "log_lines_waiting"), _whole(part(status, "counters"), "log_lines_dropped")
    if waiting < _LOG_LINES_STUCK and not dropped:
        return []
    return _labelled("log", f"{waiting} lines are not written yet, {dropped} were lost", width, "yellow")


def _whole(answer: Mapping[str, Any], name: str) -> int:
    value = answer.get(name)
    return value if isinstance(value, int) else 0


def _breaker(one: Mapping[str, Any], now_ms: int) -> str:
    node = f"{one_line(one.get('flow_id'))}@{one_line(one.get('version'))} node {one_line(one.get('node_id'))}"
    words = f"{node} is shut out since {since(one.get('since'), now_ms)}: {count(one, 'deaths')} deaths of "
    words += f"{count(one, 'executions')} executions, the last by {one_line(one.get('cause'))}; "
    words += "one tries now" if one.get("probe") else f"tried again in {seconds(one.get('retry_in_s'))}"
    return f"{words}; {count(one, 'waiting')} wait"


def _service(one: Mapping[str, Any], now_ms: int) -> list[str]:
    """What is wrong with a service; nothing where nothing is."""
    found = []
    if one.get("state") == "failed":
        words = f"{one_line(one.get('service'))} has failed, {count(one, 'failures')} times by now, the last "
        found.append(f"{words}{since(one.get('since'), now_ms)}: {one_line(one.get('error'))}")
    away = [target for target in rows_of(one, "targets") if target.get("away_since")]
    for target in away[:_SERVERS]:
        words = f"{one_line(target.get('target'))} is away since {since(target.get('away_since'), now_ms)}: "
        words += f"{count(target, 'waits')} wait for its queues"
        words += f", {count(target, 'left')} over with messages left there" if target.get("left") else ""
        found.append(f"{words}; {one_line(target.get('error'))}")
    if len(away) > _SERVERS:
        found.append(f"{len(away) - _SERVERS} more servers are away: see `status --json`")
    return found


def _disk(disk: Mapping[str, Any], width: int, now_ms: int) -> list[Text]:
    free, total, line = disk.get("free_gib"), disk.get("total_gib"), disk.get("min_free_gib")
    words = f"{gib(free)} free"
    if isinstance(total, int | float) and total and isinstance(free, int | float):
        used = min(_BAR, max(0, round(_BAR * (1 - free / total))))
        words = f"[{'#' * used}{'.' * (_BAR - used)}] {gib(free)} of {gib(total)} free"
    if disk.get("free_inodes") is not None:
        words += f", {short(disk.get('free_inodes'))} inodes"
    words += f", line at {gib(line)}" if line else ", no line set"
    words += f", {one_line(disk.get('path'))}"
    if disk.get("open") is False:
        return _labelled("disk", f"BELOW ITS LINE since {since(disk.get('since'), now_ms)}: {words}", width, "red")
    return _labelled("disk", words, width)


def _drain(drain: Mapping[str, Any], now_ms: int) -> str:
    words = f"{one_line(drain.get('phase'))} since {since(drain.get('since'), now_ms)}, {count(drain, 'left')} left"
    words += f", killed after {seconds(drain.get('timeout_s'))}" if drain.get("phase") == "draining" else ""
    receipt = part(drain, "receipt")
    names = {**{name: name.replace("_", " ") for name in receipt}, "left": "given up"}
    done = [f"{value} {names[name]}" for name, value in receipt.items() if isinstance(value, int)]
    return words + (f"; {', '.join(done)}" if done else "")


def _executors(status: Mapping[str, Any], width: int, room: int | None) -> list[Text]:
    """Those at work, the longest step first, stuck ones before; the idle ones on one line."""
    executors = rows_of(status, "executors")
    stuck = {one.get("slot"): one for one in rows_of(status, "stuck")}
    working = [one for one in executors if one.get("execution_id")]
    working.sort(key=lambda one: (one.get("slot") not in stuck, -float(one.get("step_s") or 0)))
    rest = [one for one in executors if not one.get("execution_id")]
    shown = working if room is None else working[: max(1, room - 2)]
    marked = [{**one, "stuck": one.get("stuck") or one.get("slot") in stuck} for one in shown]
    rows = [
        (
            one.get("slot"),
            one.get("execution_id"),
            one.get("flow_id"),
            one.get("node_id"),
            seconds(one.get("step_s")),
            seconds(one.get("usual_s")),
            mib(one.get("rss_mib")),
            _mark(one),
        )
        for one in marked
    ]
    lines = []
    if rows:
        lines = table_lines(
            EXECUTOR_COLUMNS, rows, width, [_style(one) for one in marked], right=EXECUTOR_NUMBERS, whole="execution"
        )
    if len(shown) < len(working):
        lines.append(Text(f"… and {len(working) - len(shown)} more at work", style="dim"))
    states: dict[str, list[str]] = {}
    for one in rest:
        states.setdefault(one_line(one.get("state")), []).append(one_line(one.get("slot")))
    for state, slots in sorted(states.items()):
        lines.append(Text(cut(f"{state}: {len(slots)} (slot {', '.join(slots)})", width), style="dim", no_wrap=True))
    return lines


def _deaths(status: Mapping[str, Any], width: int, now_ms: int) -> list[Text]:
    deaths = rows_of(status, "deaths")
    if not deaths:
        return []
    last = sorted(deaths, key=lambda one: str(one.get("at")), reverse=True)[:_DEATHS]
    rows = [
        (
            age(one.get("at"), now_ms),
            one.get("slot"),
            one.get("cause"),
            one.get("execution_id"),
            one.get("node_id"),
            one.get("peak_rss_mib"),
        )
        for one in last
    ]
    shown = f"the last {len(last)} of " if len(last) < len(deaths) else ""
    title = Text(f"deaths ({shown}{len(deaths)} that are kept)", style="bold")
    return [Text(), title, *table_lines(DEATH_COLUMNS, rows, width, right="ago slot MiB", whole="execution")]


# -- words ----------------------------------------------------------------------------------------------


def _labelled(label: str, text: str, width: int, style: str = "") -> list[Text]:
    lines = []
    for index, line in enumerate(wrapped(text, max(10, width - _LABEL - 1))):
        made = Text(no_wrap=True).append(f"{label if index == 0 else '':<{_LABEL}} ", style="dim")
        lines.append(made.append(line.plain, style=style))
    return lines


def _spread(left: Text, right: str, width: int) -> Text:
    room = width - len(right) - 2
    if room < 10:
        return Text(cut(left.plain, width), style=left.style, no_wrap=True)
    plain = cut(left.plain, room)
    made = Text(plain, style=left.style, no_wrap=True)
    return made.append("  " + right, style="not bold dim")


def _style(executor: Mapping[str, Any]) -> str:
    if executor.get("stuck"):
        return "bold red"
    return "" if executor.get("execution_id") else "dim"


def _mark(executor: Mapping[str, Any]) -> str:
    if executor.get("stuck"):
        return "STUCK"
    state = one_line(executor.get("state"))
    return "" if state in ("busy", "idle") else state

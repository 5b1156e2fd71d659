"""A supervisor's answers as people read them, and what they mean for an exit code. Pure: dicts in, rows out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

EXECUTOR_COLUMNS = ("slot", "pid", "state", "execution", "flow", "node", "step", "steps done", "rss MiB", "restarts")
GATE_COLUMNS = ("gate", "state", "since", "value", "limit", "waiting", "what to do")


def serves_well(status: Mapping[str, Any]) -> bool:
    """Whether the exit code is 0. The supervisor judges (``policy.explain``); one of an earlier version has no verdict
    and says only whether it takes work."""
    verdict = status.get("verdict")
    return verdict == "serving" if verdict is not None else status.get("serving") is True


def why(answer: Mapping[str, Any]) -> str:
    """The supervisor's one line: why it takes work, or does not, and what to do."""
    told = answer.get("answer")
    return str(told) if told else "serving" if answer.get("serving") else "NOT taking work"


def _part(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = answer.get(name)
    return part if isinstance(part, Mapping) else {}


def seconds(value: Any) -> str:
    """A duration for people: ``0.4 s``, ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "-"
    for limit, unit, divisor in ((10, "s", 1), (120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if value < limit:
            return f"{value / divisor:.1f} {unit}" if limit == 10 else f"{value / divisor:.0f} {unit}"
    return f"{value / 86_400:.0f} d"


def summary(status: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The head of ``status``: one fact a line."""
    redis, queue, disk = _part(status, "redis"), _part(status, "queue"), _part(status, "disk")
    drain, generations = _part(status, "drain"), _part(status, "generations")
    executors = [one for one in status.get("executors") or [] if isinstance(one, Mapping)]
    busy = sum(one.get("state") == "busy" for one in executors)
    return [
        ("instance", status.get("instance_id")),
        ("pid", status.get("pid")),
        ("version", status.get("version")),
        ("status", f"{status.get('status')}{' (paused)' if status.get('paused') else ''}"),
        ("answer", why(status)),
        ("uptime", seconds(status.get("uptime_s"))),
        ("registered", _yes_no(status.get("registry_registered"))),
        ("redis", f"{'connected' if redis.get('connected') else 'NOT connected'}, {redis.get('server') or '-'}"),
        ("queue", f"{queue.get('name')} (group {queue.get('group')})"),
        (
            "backlog",
            f"{_number(queue, 'lag')} not yet read, {_number(queue, 'pending')} in work, "
            f"{_number(queue, 'delayed')} delayed, {_number(queue, 'parked')} over a quota, "
            f"{_number(queue, 'dlq_length')} dead letters",
        ),
        ("executors", f"{busy} busy of {len(executors)}"),
        (
            "disk",
            f"{disk.get('path') or '-'}: {_gib(disk.get('free_gib'))} free, line at {_gib(disk.get('min_free_gib'))}",
        ),
        ("drain", drain.get("phase") or "-"),
        ("generations", " ".join(str(value) for value in generations.values()) or "-"),
    ]


def _yes_no(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, "-") if isinstance(value, bool) else "-"


def _number(part: Mapping[str, Any], name: str) -> str:
    value = part.get(name)
    return "?" if value is None else str(value)


def _gib(value: Any) -> str:
    return f"{value:.1f} GiB" if isinstance(value, (int, float)) else "?"


def executor_rows(executors: Sequence[Any]) -> list[tuple[Any, ...]]:
    """A row an executor, in the order of ``EXECUTOR_COLUMNS``."""
    return [
        (
            one.get("slot"),
            one.get("pid"),
            one.get("state"),
            one.get("execution_id"),
            one.get("flow_id"),
            one.get("node_id"),
            seconds(one.get("step_s")),
            one.get("steps_done"),
            one.get("rss_mib"),
            one.get("restarts"),
        )
        for one in executors
        if isinstance(one, Mapping)
    ]


def gate_rows(explanation: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """A row a gate of ``explain``, in the order of ``GATE_COLUMNS``."""
    return [
        (
            gate.get("name") or gate.get("gate"),
            "open" if gate.get("open") else "SHUT",
            gate.get("since"),
            gate.get("value"),
            gate.get("limit"),
            gate.get("waiting"),
            gate.get("advice") or gate.get("what_to_do"),
        )
        for gate in explanation.get("gates") or []
        if isinstance(gate, Mapping)
    ]


def in_work(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The executors that are at a step, the longest first: what a drain waits for."""
    executors = [one for one in status.get("executors") or [] if isinstance(one, Mapping)]
    working = [one for one in executors if one.get("execution_id")]
    return sorted(working, key=lambda one: -float(one.get("step_s") or 0))


def left(status: Mapping[str, Any]) -> int:
    """How many executions a drain still waits for."""
    told = _part(status, "drain").get("left")
    return told if isinstance(told, int) else len(in_work(status))


def receipt(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """What became of the work that a drain found: finished, handed on, killed (the difference of the counters)."""
    given = _part(after, "drain").get("receipt")
    if isinstance(given, Mapping):
        return {name: int(given.get(name) or 0) for name in ("finished", "handed_on", "killed")}
    first, last = _part(before, "counters"), _part(after, "counters")
    return {name: int(last.get(name) or 0) - int(first.get(name) or 0) for name in ("finished", "handed_on", "killed")}

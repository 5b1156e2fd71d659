"""A supervisor's answers as people read them, and what they mean for an exit code. Pure: dicts in, rows out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def serves_well(status: Mapping[str, Any]) -> bool:
    """Whether the exit code is 0. The supervisor judges (``policy.explain``); one of an earlier version has no verdict
    and says only whether it takes work."""
    verdict = status.get("verdict")
    return verdict == "serving" if verdict is not None else status.get("serving") is True


def why(answer: Mapping[str, Any]) -> str:
    """The supervisor's one line: why it takes work, or does not, and what to do."""
    told = answer.get("answer")
    return str(told) if told else "serving" if answer.get("serving") else "NOT taking work"


def part(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object of the answer; empty where there is none."""
    found = answer.get(name)
    return found if isinstance(found, Mapping) else {}


def rows_of(answer: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects of a list of the answer."""
    found = answer.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def seconds(value: Any) -> str:
    """A duration for people: ``0.4 s``, ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "-"
    for limit, unit, divisor in ((10, "s", 1), (120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if value < limit:
            return f"{value / divisor:.1f} {unit}" if limit == 10 else f"{value / divisor:.0f} {unit}"
    return f"{value / 86_400:.0f} d"


def in_work(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The executors that are at a step, the longest first: what a drain waits for."""
    working = [one for one in rows_of(status, "executors") if one.get("execution_id")]
    return sorted(working, key=lambda one: -float(one.get("step_s") or 0))


def left(status: Mapping[str, Any]) -> int:
    """How many executions a drain still waits for."""
    told = part(status, "drain").get("left")
    return told if isinstance(told, int) else len(in_work(status))


def left_line(status: Mapping[str, Any]) -> tuple[str, str]:
    """What a drain still waits for, the oldest step by name; and, apart since it changes all the time, for how long."""
    working = in_work(status)
    line, since = f"{left(status)} left", ""
    if working:
        oldest = working[0]
        line += f", the oldest: {oldest.get('execution_id')} at {oldest.get('node_id')}"
        since = f" since {seconds(oldest.get('step_s'))}"
    begun, timeout = part(status, "drain").get("since"), part(status, "drain").get("timeout_s")
    if begun is not None and isinstance(timeout, int | float):
        since += f"; what is left {seconds(timeout)} after the drain began is killed"
    return line, since


def receipt(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """What became of the work that a drain found: finished, handed on, killed, left (given up: Redis did not take it);
    after an undrain the difference of the counters."""
    given = part(after, "drain").get("receipt")
    if isinstance(given, Mapping):
        return {name: int(given.get(name) or 0) for name in ("finished", "handed_on", "killed", "left")}
    first, last = part(before, "counters"), part(after, "counters")
    return {name: int(last.get(name) or 0) - int(first.get(name) or 0) for name in ("finished", "handed_on", "killed")}

"""The supervisors of this host, by what each answers to ``status`` (CONTRACT); any answer is read, none is trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plaita.policy.doctor.finding import Finding, epoch_s, error, fine, note, plural, span, warning

DEATHS_S = 3600.0
DEATHS_MANY = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Soft limits, None for no limit; ``descriptors``: open now, None where unknown. ``executors`` of that process, or
    of one that would be started."""

    executors: int
    open_files: int | None = None
    processes: int | None = None
    descriptors: int | None = None


@dataclass(frozen=True, slots=True)
class Supervisor:
    """One that listens here: its ``status`` answer, or the ``error`` of asking. ``barred``: this user may not connect;
    ``gone``: the socket is there and nobody listens. ``limits``: of its process, None where they cannot be read."""

    socket: str
    status: Mapping[str, Any] | None = None
    error: str = ""
    barred: bool = False
    gone: bool = False
    limits: Limits | None = None


def judge(there: Sequence[Supervisor], now_s: float) -> list[Finding]:
    """Each that listens here, or did."""
    return list(_judge(there, now_s))


def _judge(there: Sequence[Supervisor], now_s: float) -> Iterable[Finding]:
    if not there:
        yield note(
            "host.supervisor",
            "none listens on this host",
            "",
            "nothing runs here; other hosts may",
            "systemctl status 'plaita-supervisor*'; plaita-supervisor status --socket PATH where it listens elsewhere",
        )
    for one in there:
        if one.status is None:
            yield _silent(one)
        else:
            yield from _supervisor(one.socket, one.status)
            yield from _deaths(one, now_s)


def _silent(one: Supervisor) -> Finding:
    value = f"{one.socket}: {one.error}"
    if one.barred:
        return note(
            "host.supervisor",
            value,
            "",
            "the socket is for its owner and group, so this supervisor was not asked",
            f"sudo -u plaita plaita doctor --socket {one.socket}",
        )
    if one.gone:
        return warning(
            "host.supervisor",
            value,
            "a supervisor that listens",
            "the one that made this socket was killed: a clean end takes it away",
            "journalctl -u 'plaita-supervisor*' -n 100, dmesg | grep -i oom; then systemctl start plaita-supervisor",
        )
    return error(
        "host.supervisor",
        value,
        "an answer",
        "its loop does not turn: it is stopped (SIGSTOP), swapped out or stuck; its watchdog or its leases end it",
        "kill -USR1 its pid logs its stacks; then systemctl restart plaita-supervisor",
    )


def _supervisor(path: str, status: Mapping[str, Any]) -> Iterable[Finding]:
    name = f"{status.get('instance_id', '?')}"
    ask = f"plaita-supervisor explain --socket {path}"
    state, shut = str(status.get("status")), [str(gate) for gate in status.get("shut") or ()]
    if status.get("serving"):
        yield fine("host.supervisor", f"{name}: {state}, takes work", "running, takes work")
    elif state in ("draining", "stopping"):
        yield warning(
            "host.supervisor",
            f"{name}: {state}",
            "running",
            "it takes no new work",
            f"plaita-supervisor undrain --socket {path}, unless it is meant to leave",
        )
    elif status.get("paused"):
        yield warning(
            "host.supervisor",
            f"{name}: paused",
            "running",
            "somebody paused it: it takes no new work",
            f"plaita-supervisor resume --socket {path}",
        )
    else:
        gates = f" (shut: {', '.join(shut)})" if shut else ""
        why = "it takes no new work; explain names each gate, its value and its limit"
        yield error("host.supervisor", f"{name}: {state}, takes no work{gates}", "running, takes work", why, ask)
    redis = _part(status, "redis")
    if redis.get("connected") is False:
        yield error(
            "host.supervisor_redis",
            f"{name}: no connection since {redis.get('since')}: {redis.get('error') or 'no reason known'}",
            "connected",
            "it takes nothing, and kills what runs when the leases run out; it connects by itself when it can",
            "see redis.reachable; plaita-supervisor check shows the address it was given",
        )
    if status.get("registry_registered") is False:
        yield warning(
            "host.supervisor_registry",
            f"{name}: not registered",
            "registered",
            "others do not know that it lives; with --no-registry that is meant",
            "journalctl -u 'plaita-supervisor*' -g registry -n 50",
        )
    if _part(status, "template").get("ready") is False and state == "running":
        yield warning(
            "host.template",
            f"{name}: the template makes no executors",
            "ready",
            "an executor that ends is not replaced",
            f"journalctl -u 'plaita-supervisor*' -g template -n 50; then plaita-supervisor reload --socket {path}",
        )
    for one in _rows(status, "breakers")[:5]:
        yield warning(
            "host.breaker",
            f"{name}: node {one.get('node_id')} of {one.get('flow_id')} {one.get('version')} is shut out, "
            f"{one.get('deaths')} deaths, last {one.get('cause')}",
            "none shut out",
            f"it killed several executors here; {one.get('waiting') or 0} carriers wait, one tries again each minute",
            ask + "; plaita-supervisor status names the last deaths",
        )
    for one in _rows(status, "services"):
        if one.get("state") == "failed":
            yield warning(
                "host.service",
                f"{name}: {one.get('service')} failed {one.get('failures')} times, last {one.get('error')}",
                "runs",
                "what waits for it stands still, unless another host does it; it is begun again by itself",
                "journalctl -u 'plaita-supervisor*' -g service.failed -n 50",
            )
        for target in [each for each in _rows(one, "targets") if each.get("away_since")][:5]:
            yield warning(
                "host.queue_server",
                f"{name}: {target.get('target')} away since {target.get('away_since')}: {target.get('error')}",
                "answers",
                f"executions that wait for its queues: {target.get('waits') or 0}; "
                f"waits that are over with messages left there: {target.get('left') or 0}",
                "bring it back, or see docs/waiting.md, Queues; plaita list --status suspended",
            )
    for one in _rows(status, "stuck")[:5]:
        yield warning(
            "host.stuck",
            f"{name}: {one.get('execution_id')} at {one.get('node_id')} for {span(_number(one.get('step_s')))}",
            _usual(one),
            "the step takes far longer than it usually does, or than its limit",
            f"plaita show {one.get('execution_id')}; to end it: plaita cancel {one.get('execution_id')} --reason stuck",
        )


def _usual(stuck: Mapping[str, Any]) -> str:
    if stuck.get("timeout_s") is not None:
        return f"at most {span(_number(stuck['timeout_s']))}, its limit"
    return f"about {span(_number(stuck.get('usual_s')))}, as usual"


def _deaths(one: Supervisor, now_s: float) -> Iterable[Finding]:
    """Executors that ended in mid-step within the last hour, of the 20 last ones that a supervisor keeps."""
    recent = [
        death for death in _rows(one.status or {}, "deaths") if now_s - (epoch_s(death.get("at")) or 0) <= DEATHS_S
    ]
    if not recent:
        return
    causes = Counter(str(death.get("cause")) for death in recent)
    last = recent[-1]
    grave = warning if len(recent) >= DEATHS_MANY else note
    yield grave(
        "host.deaths",
        f"{name_of(one)}: {plural(len(recent), 'executor')} died in the last hour: "
        + ", ".join(f"{cause} {count}" for cause, count in causes.most_common(4)),
        "",
        f"each lost the step it was in; the last one ran {last.get('node_id')} of {last.get('execution_id')}",
        f"plaita show {last.get('execution_id')}; plaita-supervisor status --socket {one.socket} names them all",
    )


def name_of(one: Supervisor) -> str:
    return str((one.status or {}).get("instance_id", one.socket))


def _part(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = status.get(name)
    return found if isinstance(found, Mapping) else {}


def _rows(status: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = status.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, (list, tuple)) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0

"""``plaita-supervisor record-exit``: the parent's word on how a supervisor ended, kept in Redis for its heirs (S14).

Called by systemd after the end (ExecStopPost=), so it must neither hang nor fail the unit: one connection, short
limits, one try, and an answer in words. It starts nothing, an embedded server neither.
"""

from __future__ import annotations

from plaita import jsontext
from plaita.clock import iso_utc, wall_ms
from plaita.policy.process_end import ProcessEnd
from plaita.runtime_config import SupervisorConfig
from plaita.store import deaths
from plaita.store.call import Refused, Value
from plaita.store.deaths import LastLife
from plaita.store.embedded import running_url
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner
from plaita.supervisor.identity import Identity, Namesake, judge_namesake, own_identity, pid_of
from plaita.unix.processes import start_ticks

LIMIT_S = 2.0  # to connect, and for each answer


def record_exit(config: SupervisorConfig, end: ProcessEnd, service_result: str | None, invocation: str | None) -> str:
    """Write the death record of this instance's last life. Answers why it could not, or should not; else nothing.

    ``invocation`` is systemd's INVOCATION_ID, which the dead supervisor had too. Raises InputError for an embedded
    folder that cannot be read.
    """
    url = config.redis_url if config.embedded is None else running_url(config.embedded)
    if url is None:
        return f"not recorded: no server runs in {config.embedded}"
    with SyncRunner(url, name="plaita-record-exit", connect_timeout_s=LIMIT_S, response_timeout_s=LIMIT_S) as runner:
        return _record(runner, Keys(prefix=config.key_prefix), config.instance_id, end, service_result, invocation)


def _record(
    runner: SyncRunner,
    keys: Keys,
    instance_id: str,
    end: ProcessEnd,
    service_result: str | None,
    invocation: str | None,
) -> str:
    found = runner.run(deaths.last_life(keys, instance_id))
    if not isinstance(found, Value):
        return f"not recorded: {_why(found)}"
    life = found.value
    if life.incarnation is None:
        return f"not recorded: no life of instance {instance_id!r} is known in Redis"
    pid = pid_of(life.record) if life.record is not None else None
    objection = not_ours(life, own_identity(), start_ticks(pid) if pid is not None else None, invocation)
    if objection:
        return f"not recorded: {objection}"
    text = jsontext.dumps(
        {
            "cause": end.cause,
            "signal": end.signal,
            "exit_code": end.exit_code,
            "service_result": service_result,
            "at": iso_utc(wall_ms()),
        }
    )
    answer = runner.run(deaths.record(keys, instance_id, life.incarnation, text))
    return "" if isinstance(answer, Value) else f"not recorded: {_why(answer)}"


def not_ours(life: LastLife, own: Identity, started_of_pid: int | None, invocation: str | None) -> str:
    """Why the life that the registry knows is not the one that ended here; nothing where it is, or may be: without a
    record, nobody lives under this id."""
    if life.record is None:
        return ""
    there = _invocation_of(life.record)
    if invocation and there and there != invocation:
        return "the life that the registry knows is not of this unit's run; this one never registered"
    verdict = judge_namesake(life.record, own, started_of_pid)
    if verdict is Namesake.ALIVE:
        return "another supervisor with this instance id runs on this host"
    if verdict is Namesake.UNKNOWN:
        return "the life that the registry knows is not one of this machine"
    return ""


def _invocation_of(record: bytes) -> str | None:
    try:
        value = jsontext.loads(record)
    except jsontext.JSONTextError:
        return None
    return value.get("invocation") if isinstance(value, dict) else None


def _why(answer: object) -> str:
    if isinstance(answer, Refused):
        return f"{answer.reason} {answer.detail}".strip()
    return str(getattr(answer, "error", answer))

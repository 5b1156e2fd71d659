"""What became of the supervisor that last had an execution: found out by the one that gives the execution up (S14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plaita import jsontext
from plaita.store import deaths
from plaita.store.call import Value
from plaita.store.keys import Keys
from plaita.supervisor.sender import Sender

UNRECORDED = (
    "nobody recorded how: `plaita-supervisor record-exit` has not told it (systemd runs it by ExecStopPost=), or it "
    "lost its lease alive"
)


async def supervisor_death(
    sender: Sender, keys: Keys, control: Mapping[str, str], *, node_id: str, attempt: int, until: int
) -> dict[str, Any]:
    """The death under which a step was lost, shaped as that of an executor is in ``records``; ``earlier`` is such a one
    before it, of the same node.

    ``control``: the row's fields; ``last_holder`` is ``<instance>/<incarnation>``. ``until``: boot ms, how long Redis
    may take to answer; a record that cannot be read is one that is not there.
    """
    last_holder = control.get("last_holder")
    recorded = await _recorded(sender, keys, last_holder, until)
    cause = recorded.get("cause")
    death: dict[str, Any] = {
        "cause": f"supervisor died: {cause}" if cause else "supervisor died",
        "signal": recorded.get("signal"),
        "exit_code": recorded.get("exit_code"),
        "service_result": recorded.get("service_result"),
        "node": node_id,
        "attempt": attempt,
        "holder": last_holder,
        "at": recorded.get("at"),
    }
    if not recorded:
        death["note"] = UNRECORDED
    earlier = _object(control.get("death"))
    if earlier.get("node") == node_id:
        death["earlier"] = earlier
    return death


async def _recorded(sender: Sender, keys: Keys, last_holder: str | None, until: int) -> dict[str, Any]:
    instance_id, _, incarnation = (last_holder or "").rpartition("/")
    if not instance_id:
        return {}
    answer = await sender.send(deaths.find(keys, instance_id, incarnation), until=until)
    return _object(answer.value) if isinstance(answer, Value) else {}


def _object(text: bytes | str | None) -> dict[str, Any]:
    try:
        value = jsontext.loads(text) if text else None
    except jsontext.JSONTextError:
        return {}
    return value if isinstance(value, dict) else {}

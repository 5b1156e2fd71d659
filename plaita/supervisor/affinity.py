"""Carriers that name another host (ledger G4): looks at that host and the time, asks ``policy.affinity``, puts them
back.

Decides nothing itself. A copy takes the carrier's place in one call, so that there is never none and never two. When
the copy is due, this host steps back in the line of those that wait for carriers: the server serves who waits longest,
and hosts that read in a steady rhythm would else meet the same copy again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from plaita.clock import boot_ms
from plaita.policy import affinity, copies
from plaita.policy.affinity import Ruling, Target, Verdict
from plaita.policy.carrier import Carrier
from plaita.store import carriers, registry, server
from plaita.store.call import Value
from plaita.store.carriers import Entry
from plaita.store.keys import Keys
from plaita.supervisor import logs
from plaita.supervisor.identity import registry_status
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats

STREAM = "w"  # where copies go: read first, so that what was handed over does not wait behind a backlog of starts
STEP_BACK_S = 0.03  # before a copy is due
ANSWER_MS = 5_000  # how long Redis may take before the carrier is left as it is


class Affinity:
    """One for a supervisor. ``patience_ms``: how long a carrier is handed over before anybody may run it. ``step_back``
    ends this host's waiting read, so that it waits anew."""

    def __init__(
        self,
        keys: Keys,
        sender: Sender,
        stats: Stats,
        *,
        instance_id: str,
        patience_ms: int,
        step_back: Callable[[], Coroutine[Any, Any, object]],
    ) -> None:
        self._keys = keys
        self._sender = sender
        self._stats = stats
        self._instance_id = instance_id
        self._patience_ms = patience_ms
        self._step_back = step_back
        self._tasks: set[asyncio.Task[object]] = set()

    async def runs_here(self, carrier: Carrier, entry: Entry) -> bool:
        """False when it was put back for another, or left pending because Redis did not say how that one is."""
        target = carrier.target_instance_id
        if target is None or affinity.is_for(target, self._instance_id):
            return True
        ruling = await self._judge(target, entry)
        facts = {"execution_id": carrier.execution_id, "entry_id": entry.entry_id, "target": target}
        if ruling.verdict is Verdict.KEEP:
            logs.warning("dispatch-target-unreadable", **facts)
        elif ruling.verdict is Verdict.HAND_OVER:
            if await self._hand_over(entry, ruling):
                self._stats.add("handed_over")
                before_due_s = max(0.0, ruling.delay_ms / 1000 - STEP_BACK_S)
                asyncio.get_running_loop().call_later(before_due_s, self._wait_anew)
                logs.info("TaskNotForThisWorker", delay_ms=ruling.delay_ms, handovers=ruling.handover.count, **facts)
        elif await self._broadcast(entry):
            self._stats.add("broadcast")
            gone = ruling.verdict is Verdict.BROADCAST
            event = "dispatch-target-unavailable:broadcast" if gone else "AffinityHandoverExhausted"
            logs.warning(event, why=ruling.verdict.value, **facts)
        return False

    async def _judge(self, target: str, entry: Entry) -> Ruling:
        until = boot_ms() + ANSWER_MS
        found = await self._sender.send(registry.get(self._keys, target), until=until)
        now = await self._sender.send(server.now_ms(self._keys), until=until)
        status = registry_status(found.value.record) if isinstance(found, Value) and found.value is not None else None
        return affinity.judge(
            ours=False,
            target=Target(isinstance(found, Value), status),
            handover=affinity.handover_of(entry.fields),
            now_ms=now.value if isinstance(now, Value) else None,
            patience_ms=self._patience_ms,
        )

    async def _hand_over(self, entry: Entry, ruling: Ruling) -> bool:
        fields = copies.same_body(entry.fields, entry.entry_id, affinity.fields_of(ruling.handover))
        return await self._replace(entry, fields, ruling.delay_ms)

    async def _broadcast(self, entry: Entry) -> bool:
        return await self._replace(entry, copies.broadcast(entry.fields, entry.entry_id), 0)

    async def _replace(self, entry: Entry, fields: copies.Fields, delay_ms: int) -> bool:
        member = f"handover {entry.stream} {entry.entry_id}"
        call = carriers.replace(self._keys, entry.stream, entry.entry_id, STREAM, fields, delay_ms, member)
        answer = await self._sender.send(call, until=boot_ms() + ANSWER_MS)
        return isinstance(answer, Value)

    def _wait_anew(self) -> None:
        task = asyncio.ensure_future(self._step_back())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

"""Carriers for other hosts: those that name one, and those for a path that is not here (ledger G4). Looks at that host
or path and at the time, asks ``policy.affinity``, puts them back.

Decides nothing itself. A copy takes the carrier's place in one call, so that there is never none and never two. When
the copy is due, this host steps back in the line of those that wait for carriers: the server serves who waits longest,
and hosts that read in a steady rhythm would else meet the same copy again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from plaita.clock import boot_ms
from plaita.policy import affinity, copies, repos
from plaita.policy.affinity import Ruling, Target, Verdict
from plaita.policy.carrier import Carrier, payload_fields
from plaita.store import carriers, registry, server
from plaita.store.call import Value
from plaita.store.carriers import Entry
from plaita.store.keys import Keys
from plaita.supervisor import logs
from plaita.supervisor.identity import registry_status
from plaita.supervisor.log_limit import LogLimit
from plaita.supervisor.paths import Paths
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats

STREAM = "w"  # where copies go: read first, so that what was handed over does not wait behind a backlog of starts
STEP_BACK_S = 0.03  # before a copy is due
ANSWER_MS = 5_000  # how long Redis may take before the carrier is left as it is
SAY_EVERY_MS = 60_000
FOLLOWS_PATHS = ("start", "continue", "retry")  # an event or the end of a wait goes to any host, as for denied ones


class Affinity:
    """One for a supervisor. ``patience_ms``: how long a carrier is handed over before anybody may run it. ``step_back``
    ends this host's waiting read, so that it waits anew. ``paths`` None: no path is looked at."""

    def __init__(
        self,
        keys: Keys,
        sender: Sender,
        stats: Stats,
        *,
        instance_id: str,
        patience_ms: int,
        step_back: Callable[[], Coroutine[Any, Any, object]],
        paths: Paths | None,
    ) -> None:
        self._keys = keys
        self._sender = sender
        self._stats = stats
        self._instance_id = instance_id
        self._patience_ms = patience_ms
        self._step_back = step_back
        self._paths = paths
        self._said = LogLimit(SAY_EVERY_MS)
        self._tasks: set[asyncio.Task[object]] = set()

    async def runs_here(self, carrier: Carrier, entry: Entry) -> bool:
        """False when it was put back for another, or left pending because Redis did not say how that one is."""
        target = carrier.target_instance_id
        if not target:
            return await self._has_its_path(carrier, entry)
        if affinity.is_for(target, self._instance_id):
            return True
        ruling = await self._judge(target, entry)
        facts = {"execution_id": carrier.execution_id, "entry_id": entry.entry_id, "target": target}
        if ruling.verdict is Verdict.KEEP:
            logs.warning("dispatch-target-unreadable", **facts)
        elif ruling.verdict is Verdict.HAND_OVER:
            if await self._hand_over(carrier, entry, ruling):
                logs.info("TaskNotForThisWorker", delay_ms=ruling.delay_ms, handovers=ruling.handover.count, **facts)
        elif await self._broadcast(carrier, entry):
            self._stats.add("broadcast")
            gone = ruling.verdict is Verdict.BROADCAST
            if not gone:
                self._stats.add("handover_exhausted")
            event = "dispatch-target-unavailable:broadcast" if gone else "AffinityHandoverExhausted"
            logs.warning(event, why=ruling.verdict.value, **facts)
        return False

    async def _has_its_path(self, carrier: Carrier, entry: Entry) -> bool:
        """False when it was put back for a host that has the path, or left pending since Redis does not answer. It is
        for certain that this host has none, or it runs here."""
        if self._paths is None or carrier.kind not in FOLLOWS_PATHS:
            return True
        path = repos.path_of(repos.repo_of(entry.fields, payload_fields(entry.fields)))
        if path is None or not await self._missing(path):
            return True
        now = await self._sender.send(server.now_ms(self._keys), until=boot_ms() + ANSWER_MS)
        ruling = affinity.judge_path(
            missing=True,
            instance_id=self._instance_id,
            handover=affinity.handover_of(entry.fields),
            now_ms=now.value if isinstance(now, Value) else None,
            patience_ms=self._patience_ms,
        )
        facts = {"execution_id": carrier.execution_id, "entry_id": entry.entry_id, "missing": path}
        if ruling.verdict is Verdict.EXHAUSTED:
            self._stats.add("handover_exhausted")
            logs.warning("AffinityHandoverExhausted", why=ruling.verdict.value, effect="it is run here", **facts)
            return True
        if ruling.verdict is Verdict.HAND_OVER and await self._hand_over(carrier, entry, ruling):
            times = self._said.allow(("missing", path), boot_ms())
            if times is not None:
                logs.warning(
                    "TaskNotForThisWorker",
                    times=times,
                    delay_ms=ruling.delay_ms,
                    handovers=ruling.handover.count,
                    advice="it is left for hosts that have this path; after the min-idle time any host runs it",
                    **facts,
                )
        return False

    async def _missing(self, path: str) -> bool:
        found = await self._paths.missing(path) if self._paths is not None else None
        if found is None and self._said.allow(("unknown", path), boot_ms()) is not None:
            logs.warning("dispatch-path-unknown", path=path, effect="what needs it runs here", why="no answer in time")
        return found is True

    async def _judge(self, target: str, entry: Entry) -> Ruling:
        until = boot_ms() + ANSWER_MS
        found = await self._sender.send(registry.get(self._keys, target), until=until)
        now = await self._sender.send(server.now_ms(self._keys), until=until)
        status = registry_status(found.value.record) if isinstance(found, Value) and found.value is not None else None
        return affinity.judge(
            ours=False,
            target=Target(isinstance(found, Value), status),
            instance_id=self._instance_id,
            handover=affinity.handover_of(entry.fields),
            now_ms=now.value if isinstance(now, Value) else None,
            patience_ms=self._patience_ms,
        )

    async def _hand_over(self, carrier: Carrier, entry: Entry, ruling: Ruling) -> bool:
        changes = copies.named(carrier) | affinity.fields_of(ruling.handover)
        fields = copies.same_body(entry.fields, entry.entry_id, changes)
        if not await self._replace(entry, fields, ruling.delay_ms):
            return False
        self._stats.add("handed_over")
        before_due_s = max(0.0, ruling.delay_ms / 1000 - STEP_BACK_S)
        asyncio.get_running_loop().call_later(before_due_s, self._wait_anew)
        return True

    async def _broadcast(self, carrier: Carrier, entry: Entry) -> bool:
        return await self._replace(entry, copies.broadcast(entry.fields, entry.entry_id, copies.named(carrier)), 0)

    async def _replace(self, entry: Entry, fields: copies.Fields, delay_ms: int) -> bool:
        member = f"handover {entry.stream} {entry.entry_id}"
        call = carriers.replace(self._keys, entry.stream, entry.entry_id, STREAM, fields, delay_ms, member)
        answer = await self._sender.send(call, until=boot_ms() + ANSWER_MS)
        return isinstance(answer, Value)

    def _wait_anew(self) -> None:
        task = asyncio.ensure_future(self._step_back())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

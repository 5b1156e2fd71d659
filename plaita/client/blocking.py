"""``Client``: the blocking face of the operations. One connection set, usable from one thread at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from plaita.client import approvals, cluster, events, operations, replaying, resuming, schedules, upkeep
from plaita.client.base import ClientBase
from plaita.client.events import PublishedEvent
from plaita.client.operations import Operation, Pause, StartedExecution
from plaita.client.replaying import Manner, Wanted
from plaita.store.runner_sync import SyncRunner

T = TypeVar("T")


class Client(ClientBase):
    """Starts and follows executions from a program.

        with Client("redis://localhost:6379/0") as client:
            started = client.start("greet", {"name": "x"})
            print(client.wait(started.execution_id, timeout=30)["output"])

    Without arguments it connects where the commands do (``PLAITA_REDIS_URL``, ``PLAITA_EMBEDDED``, the TOML file).
    Executions are dicts in the form of ``plaita show --json``. Raises InputError (bad arguments), RefusedError (the
    store said no; ``reason`` is a stable word), UnreachableError, WaitTimeoutError.
    """

    def _open(self, url: str) -> None:
        self._runner = SyncRunner(url)

    def close(self) -> None:
        """Close the connections; the last clean user of an embedded server stops it (DECISIONS 35)."""
        self._runner.close()
        self._let_go_of_server()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def perform(self, operation: Operation[T]) -> T:
        """Drive one operation of ``plaita.client.operations`` to its end."""
        answer: Any = None
        try:
            while True:
                step = operation.send(answer)
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    answer = None
                else:
                    answer = self._runner.run(step)
        except StopIteration as done:
            value: T = done.value
            return value

    def start(
        self,
        flow_id: str,
        input: Any = None,
        *,
        version: str | None = None,
        execution_id: str | None = None,
        dedup_key: str | None = None,
        target: str | None = None,
    ) -> StartedExecution:
        """Put an execution of a stored flow in the queue; ``input`` None means ``{}``.

        With ``dedup_key``, a second start within seven days answers the first execution. ``target`` is the instance
        that is to run it; when that one is gone, any may.
        """
        return self.perform(
            operations.start(
                self.keys,
                flow_id,
                {} if input is None else input,
                version=version,
                execution_id=execution_id,
                dedup_key=dedup_key,
                target=target,
                family=self.family,
            )
        )

    def get(self, execution_id: str) -> dict[str, Any]:
        """The execution as it stands."""
        return self.perform(operations.get(self.keys, execution_id))

    def wait(self, execution_id: str, timeout: float | None = None) -> dict[str, Any]:
        """The execution when it has ended, however it ended. Raises WaitTimeoutError after ``timeout`` seconds."""
        return self.perform(operations.wait(self.keys, [execution_id], timeout))[0]

    def wait_all(self, execution_ids: Iterable[str], timeout: float | None = None) -> list[dict[str, Any]]:
        """Like ``wait`` for several, in the order given."""
        return self.perform(operations.wait(self.keys, list(execution_ids), timeout))

    def cancel(self, execution_id: str, reason: str = "") -> dict[str, Any]:
        """Ask for an execution's end: ``{"execution_id", "status", "cancel_requested", "cancel"}``; how far it is then,
        the ``cancel`` of ``get`` tells."""
        return self.perform(resuming.cancel(self.keys, execution_id, reason, self.family))

    def dead_letters(self, limit: int = 50) -> list[dict[str, Any]]:
        """What could not be run, the newest first: the entries of ``plaita dlq list --json``. Of all tenants, or of the
        one that this client was given."""
        found = self.perform(operations.list_dead_letters(self.keys, limit, self.named_tenant))
        entries: list[dict[str, Any]] = found["entries"]
        return entries

    def replay_dead_letters(self, wanted: Wanted, manner: Manner | None = None) -> dict[str, Any]:
        """Bring dead letters back into the queue: what became of each is in the answer (``replaying.replay``)."""
        return self.perform(replaying.replay(self.keys, wanted, self.manner(manner)))

    def resume(self, execution_id: str, resume_type: str, data: Any = None, *, unblock: bool = False) -> dict[str, Any]:
        """Ask for a resume: ``event`` (with its data), ``timeout``, ``continue`` or ``retry``. The answer's ``resumed``
        says whether anything was set going, its ``reason`` why not (``resuming.EXPLANATIONS``). ``unblock``: the limits
        of a retry count anew (ledger S13)."""
        asking = resuming.resume(self.keys, execution_id, resume_type, data, self.family, unblock=unblock)
        return self.perform(asking)

    def rebuild_execution_index(self, *, requeue: bool = False) -> dict[str, Any]:
        """Index all rows of the tenant anew (ledger D4); with ``requeue``, what has lost its carrier gets one."""
        return self.perform(upkeep.reindex(self.keys, self.retention_ms(), requeue=requeue, family=self.family))

    def reap(self, idle_minutes: float, *, dry_run: bool = False) -> dict[str, Any]:
        """End as ``error`` (orphaned) what is running, is held by nobody and has been silent for so long (D6)."""
        return self.perform(upkeep.reap(self.keys, idle_minutes, self.retention_ms(), dry_run=dry_run))

    def instances(self) -> dict[str, Any]:
        """Who is there: the answer of ``plaita cluster instances --json``."""
        return self.perform(cluster.instances(self.keys))

    def cluster_config(self, instance_id: str | None = None) -> dict[str, Any]:
        """By which settings they work, and what differs: the answer of ``plaita cluster config --json``."""
        return self.perform(cluster.config(self.keys, instance_id))

    def publish(
        self, event_type: str, data: Any = None, *, correlation_id: str | None = None, event_id: str | None = None
    ) -> PublishedEvent:
        """Publish an event; who waits for it goes on (``plaita.client.events.publish``)."""
        asking = events.publish(self.keys, event_type, data, correlation_id=correlation_id, event_id=event_id)
        return self.perform(asking)

    def approvals(self, limit: int = 50) -> list[dict[str, Any]]:
        """Open approvals, the oldest first: the entries of ``plaita approval list --json``."""
        found: list[dict[str, Any]] = (self.perform(approvals.list_approvals(self.keys, limit)))["approvals"]
        return found

    def approval(self, approval_id: str) -> dict[str, Any]:
        """One open approval: what is asked, who may decide, who has. Reading it decides nothing."""
        return self.perform(approvals.get_approval(self.keys, approval_id))

    def decide(
        self,
        approval_id: str,
        decision: Literal["approve", "reject"],
        by: str,
        *,
        comment: str = "",
        form: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Decide as one of the approvers; ``settled`` of the answer: it goes on (``plaita.client.approvals.decide``).
        That ``by`` is who they say is the caller's to know."""
        asking = approvals.decide(self.keys, approval_id, decision, by, comment, form, self.family)
        return self.perform(asking)

    def put_schedule(
        self,
        schedule_id: str,
        flow_id: str,
        cron: str,
        *,
        tz: str = "UTC",
        input: Any = None,
        version: str | None = None,
        misfire: str = "once",
        enabled: bool = True,
        name: str = "",
    ) -> dict[str, Any]:
        """Make a schedule, or make it another (``plaita.client.schedules.put``): its document."""
        asking = schedules.put(
            self.keys,
            schedule_id,
            flow_id,
            cron,
            tz=tz,
            params=input,
            version=version,
            misfire=misfire,
            enabled=enabled,
            name=name,
        )
        return self.perform(asking)

    def schedules(self) -> list[dict[str, Any]]:
        """All schedules of the tenant, by id: the documents of ``plaita schedule show --json``."""
        found: list[dict[str, Any]] = (self.perform(schedules.list_schedules(self.keys)))["schedules"]
        return found

    def trigger_schedule(self, schedule_id: str) -> dict[str, Any]:
        """Run a schedule once, now; its due times stay as they are."""
        return self.perform(schedules.trigger(self.keys, schedule_id))

    def enable_schedule(self, schedule_id: str, enabled: bool = True) -> dict[str, Any]:
        """Pause a schedule, or let it go on from its next due time."""
        return self.perform(schedules.set_enabled(self.keys, schedule_id, enabled))

    def remove_schedule(self, schedule_id: str) -> dict[str, Any]:
        """Take a schedule away; its executions stay."""
        return self.perform(schedules.remove(self.keys, schedule_id))

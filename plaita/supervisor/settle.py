"""Writing down what became of a carrier: builds the store's calls from a held execution and sends them until known.

Owns what becomes of Redis's answers; what is written stands in ``records``. Decides nothing: ``dispatch`` asks for one
named end after another. Every method leaves the carrier settled by one script, or still pending when Redis refused or
did not answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plaita import jsontext
from plaita.clock import boot_ms, wall_ms
from plaita.errors import CODE_CANCELLED, FlowErrorType
from plaita.ids import new_nonce
from plaita.ipc.frames import BLOB_COUNT_LIMIT
from plaita.ipc.messages import Answer
from plaita.policy import lease, retry
from plaita.policy.carrier import schema_version_of
from plaita.policy.copies import continue_copy
from plaita.policy.dead_letter import envelope
from plaita.store import executions, failures
from plaita.store.call import Call, Refused, Value
from plaita.store.carriers import Entry
from plaita.store.executions import (
    Begun,
    Commit,
    DeadLetter,
    Finish,
    HandOn,
    Postpone,
    Retake,
    Suspended,
)
from plaita.store.failures import CountFailure
from plaita.store.keys import Keys
from plaita.supervisor import logs, post_mortem, records, suspends
from plaita.supervisor.answers import HeldAnswers, weight
from plaita.supervisor.dead_letters import DeadLetters, Notice
from plaita.supervisor.executor import Died
from plaita.supervisor.held import Held, NodeTiming
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats

CONTEXT_MAX_VALUES = BLOB_COUNT_LIMIT - 16  # what one frame takes to a fresh executor, besides flow and input


@dataclass(frozen=True, slots=True)
class SettleSettings:
    """``consumer`` is the name entries are pending for; ``retention_ms`` is DECISIONS 17."""

    consumer: str
    holder: str
    lease_ttl_ms: int
    max_deliveries: int
    retention_ms: int
    dlq_maxlen: int
    context_max_bytes: int


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """Why the carrier that an execution ends with could not be run; ``raw``: its fields are kept byte for byte (Q9)."""

    why: str
    raw: bool


class Settler:
    """All answers of Redis pass through here, and what they mean for what is held."""

    def __init__(
        self, settings: SettleSettings, keys: Keys, sender: Sender, stats: Stats, dead_letters: DeadLetters
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._sender = sender
        self._stats = stats
        self._dead_letters = dead_letters
        self._answers = HeldAnswers()

    # -- a step is done ----------------------------------------------------------------------------------------

    async def answered(self, held: Held, answer: Answer, elapsed_ms: int) -> bool:
        """Commit an ``advanced`` or finish an ``ended`` step. True when the next step may begin."""
        if answer.result is not None:
            held.result_sizes[held.node_id] = len(answer.result)
        for name, value in answer.state.items():
            held.state_sizes[name] = len(value)
        size = len(held.input) + sum(held.result_sizes.values()) + sum(held.state_sizes.values())
        limit = self._settings.context_max_bytes
        if size > limit:
            await self._context_too_large(held, answer, f"are {size} bytes together, over the limit of {limit}")
            return False
        count = len(held.result_sizes) + len(held.state_sizes)
        if count > CONTEXT_MAX_VALUES:
            text = f"and its state are {count} values, over the limit of {CONTEXT_MAX_VALUES}"
            await self._context_too_large(held, answer, text)
            return False
        if answer.kind == "ended":
            await self._completed(held, answer, elapsed_ms)
            return False
        if answer.kind == "suspended":
            return await self._suspended(held, answer, elapsed_ms)
        return await self._advanced(held, answer, elapsed_ms)

    async def _advanced(self, held: Held, answer: Answer, elapsed_ms: int) -> bool:
        assert answer.next_node is not None
        call = executions.commit(
            held.keys,
            Commit(
                execution_id=held.execution_id,
                token=held.token,
                step=held.step + 1,
                lease_ttl_ms=self._settings.lease_ttl_ms,
                lease_value=held.lease_value,
                node_id=held.node_id,
                result=answer.result,
                timing=records.timing(held, answer, "completed"),
                next_node=answer.next_node,
                next_timing=records.open_timing(held, answer),
                branch=answer.branch,
                active_ms_delta=elapsed_ms + held.unsaved_ms,
                state=answer.state,
                nodes=held.order + 1 if held.node_id not in held.timings else None,
            ),
        )
        sent_at = boot_ms()
        sent = time.perf_counter_ns()
        reply = await self._write(held, call)
        self._stats.timings["commit_us"] += (time.perf_counter_ns() - sent) // 1000
        if reply is None:
            return False
        # A lease that was still there is not made longer by a commit: its times stay until the keeper has renewed it.
        ttl_ms = self._settings.lease_ttl_ms
        if reply.lease_taken:
            held.lease = lease.times(sent_at, ttl_ms)
        elif held.lease_lost:
            # A renewal found none. This commit, sent twice, has taken it back; or somebody else has: "done before" is
            # answered to an old token too. The next renewal says which, and no step begins before.
            held.lease = lease.times(boot_ms() - ttl_ms, ttl_ms)
        held.lease_lost = False
        if reply.cancel and held.cancel is None:
            held.cancel = reply.cancel_reason or "cancelled"
        held.timings[held.node_id] = NodeTiming(held.order, held.attempt, held.visit, answer.started_ms, open=False)
        held.step += 1
        held.active_ms += elapsed_ms
        held.unsaved_ms = 0
        held.last_node, held.branch, held.node_id = held.node_id, answer.branch, answer.next_node
        held.wait, held.woken, held.wake_data = "", "", None
        held.lost = 1
        return True

    async def _completed(self, held: Held, answer: Answer, elapsed_ms: int) -> None:
        reply = await self._write(
            held,
            executions.finish(
                held.keys,
                self._finish(
                    held,
                    "completed",
                    node_id=held.node_id,
                    result=answer.result,
                    output=answer.output,
                    timing=records.timing(held, answer, "completed"),
                    active_ms=elapsed_ms + held.unsaved_ms,
                    state=answer.state,
                    branch=answer.branch,
                ),
            ),
        )
        if reply is not None:
            self._finished(held, "completed")

    async def _suspended(self, held: Held, answer: Answer, elapsed_ms: int) -> bool:
        """Row, timer, lease and carrier in one call (DECISIONS 26). True when a cancel came first, which ends it."""
        wait = suspends.suspend_of(held, answer, elapsed_ms)
        answered = await self._write_unless_cancelled(held, executions.suspend(held.keys, wait))
        while isinstance(answered, Suspended) and answered.open:
            wait = suspends.judged(held, wait, answered, self._stats)
            answered = await self._write_unless_cancelled(held, executions.suspend(held.keys, wait))
        if answered == "cancelled":
            held.wait = str(wait.step)  # its code has run: it may have something to undo
            held.forestalled = {held.node_id: answer.result or b"null"}, dict(answer.state)
            held.active_ms += elapsed_ms
            held.unsaved_ms += elapsed_ms
            return True
        if answered is not None:
            self._stats.add("suspended")
            self._stats.add("acked")
            logs.info(
                "execution.suspended",
                execution_id=held.execution_id,
                flow_id=held.flow_id,
                node_id=held.node_id,
                event_type=wait.event_type,
                deadline_ms=answered.deadline_ms,
                early_event=wait.early or None,
            )
        return False

    async def _write_unless_cancelled(
        self, held: Held, call: Call[Suspended]
    ) -> Suspended | Literal["cancelled"] | None:
        """As ``_write``; a suspend is refused while a cancel is asked for, which then is the holder's to do."""
        held.settling = True
        answer = await self._send_held(held, call)
        held.settling = isinstance(answer, Value) and not answer.value.open
        if isinstance(answer, Value):
            done: Suspended = answer.value
            return done
        if isinstance(answer, Refused) and answer.reason == "cancel":
            held.cancel = held.cancel or answer.detail or "cancelled"
            return "cancelled"
        self._not_written(held, call, answer)
        return None

    async def _context_too_large(self, held: Held, answer: Answer, what: str) -> None:
        error = records.error(
            held,
            f"the results of this execution {what} for a whole context",
            cause="ContextTooLarge",
            exception="FlowExecutionException",
        )
        await self._end_in_error(held, error, timing=records.timing(held, answer, "error"))

    # -- a step failed --------------------------------------------------------------------------------------------

    async def failed(self, held: Held, entry: Entry, answer: Answer) -> None:
        """A node raised: retried later, or the end (ledger S9-S12)."""
        error = dict(answer.error or {})
        retryable = bool(error.pop("retryable", False))
        node_failures, total = 1, 1
        if retryable:
            count = failures.count_failure(
                held.keys, CountFailure(held.execution_id, held.token, held.step + 1, held.node_id)
            )
            counted = await self._write(held, count)
            if counted is None:
                return
            node_failures, total = counted.node_failures, counted.total
        verdict = retry.after_failure(
            retryable=retryable,
            node_failures=node_failures,
            total_retries=total,
            max_deliveries=self._settings.max_deliveries,
        )
        logs.warning(
            "step.failed",
            execution_id=held.execution_id,
            node_id=held.node_id,
            error=error.get("message"),
            attempt=held.attempt,
            next=verdict.next.value,
            delay_ms=verdict.delay_ms or None,
        )
        error["failed_node"] = held.node_id
        if verdict.next is retry.Next.LATER:
            self._stats.add("node_retries")
            await self._postpone(
                held, verdict.delay_ms, lower_lost=True, error=error, timing=records.timing(held, answer, "retrying")
            )
            return
        error["node_retries"] = node_failures - 1 if retryable else max(0, held.attempt - 1)
        letter = None
        if verdict.dead_letter:
            letter = self._letter(held, entry, f"processing_failed: {error.get('message')}", str(error["exception"]))
        await self._end_in_error(
            held, error, timing=records.timing(held, answer, "error"), letter=letter, deterministic=not retryable
        )

    # -- an executor died ---------------------------------------------------------------------------------------------

    async def retake(self, held: Held, died: Died) -> bool:
        """A new token under the same lease; True when the step may run again (DECISIONS 8)."""
        nonce = new_nonce()
        sent_at = boot_ms()
        call = executions.retake(
            held.keys,
            Retake(
                execution_id=held.execution_id,
                old_token=held.token,
                holder=held.holder,
                nonce=nonce,
                lease_ttl_ms=self._settings.lease_ttl_ms,
                stream=held.stream,
                entry_id=held.entry_id,
                death=jsontext.dumps(records.death(held, died)),
                active_ms_delta=held.unsaved_ms,
                max_lost=self._settings.max_deliveries,
            ),
        )
        reply = await self._write(held, call)
        if reply is None:
            return False
        held.token = reply.token
        held.lost = int(reply.control.get("lost", held.lost + 1))
        held.lease = lease.times(sent_at, self._settings.lease_ttl_ms)
        held.lease_lost = False
        held.unsaved_ms = 0
        if reply.cancel and held.cancel is None:
            held.cancel = reply.cancel_reason or "cancelled"
        return True

    async def postpone_after_death(self, held: Held, died: Died, delay_ms: int) -> None:
        """Give it up for a while: the step stays lost, its death is recorded."""
        death = records.death(held, died)
        logs.warning("step.postponed", execution_id=held.execution_id, node_id=held.node_id, delay_ms=delay_ms, **death)
        await self._postpone(held, delay_ms, lower_lost=False, death=death)

    async def postpone_uncounted(self, held: Held, delay_ms: int) -> None:
        """Nothing was tried: it comes back later, here or elsewhere, and no budget of it is touched (DECISIONS 38)."""
        await self._postpone(held, delay_ms, lower_lost=True)

    async def executor_died(self, held: Held, entry: Entry, died: Died, reason: str) -> None:
        """The budget of lost steps is spent: terminal error, and the carrier to the DLQ (ledger S14)."""
        death = records.death(held, died)
        error = records.error(
            held,
            f"the executor died under this node: {died.cause} ({reason})",
            cause=died.cause,
            exception="ExecutorDiedError",
        )
        error["death"] = death
        error["node_retries"] = held.attempt - 1
        letter = self._letter(held, entry, f"executor died: {died.cause} ({reason})", died.cause, death)
        await self._end_in_error(held, error, timing=records.unanswered_timing(held), letter=letter)

    async def exhausted(self, held: Held, entry: Entry, begun: Begun, unrunnable: Unrunnable | None = None) -> None:
        """Begun once more than its budget allows: it must not run again (DECISIONS 7; ledger Q4 with a carrier that
        cannot be run)."""
        lost = self._settings.max_deliveries
        death = None
        if begun.lost_exhausted:
            what = f"{lost} steps of this node in a row were lost: their executor or their supervisor died"
            death = await post_mortem.supervisor_death(
                self._sender,
                self._keys,
                begun.control,
                node_id=held.node_id,
                attempt=held.attempt - held.lost + lost,
                until=min(boot_ms() + self._settings.lease_ttl_ms, held.lease.horizon),
            )
            error = records.error(held, what, cause=death["cause"], exception="ExecutorDiedError")
            error["death"] = death
        else:
            what = "its budget is spent"
            error = records.error(held, what, cause="budget spent", exception="NodeExecutionError")
        error["node_retries"] = lost - 1
        letter = self._letter(held, entry, what, error["cause"], death, unrunnable)
        await self._end_in_error(held, error, timing=records.unanswered_timing(held), letter=letter)

    # -- other ends ------------------------------------------------------------------------------------------------

    async def cancelled(self, held: Held, entry: Entry | None = None, unrunnable: Unrunnable | None = None) -> None:
        """The checkpoint before the stopped step is kept (ledger S8). A carrier that could not be run is still seen
        (Q9)."""
        reason = held.cancel or "cancelled"
        what = "cancelled" if reason == "cancelled" else f"cancelled: {reason}"  # the first: no reason was given
        error = records.error(held, what, code=CODE_CANCELLED, cause="cancel", exception="FlowCancelledException")
        error["error_type"] = FlowErrorType.FLOW_ERROR.value
        begun = held.step_started > 0 or held.node_id in held.timings
        end = self._finish(
            held,
            "cancelled",
            node_id=held.node_id if begun else None,
            timing=records.unanswered_timing(held, "cancelled") if begun else None,
            error=error,
            active_ms=held.unsaved_ms,
            cancel_reason=reason,
            letter=self._letter(held, entry, reason, "cancel", None, unrunnable) if entry and unrunnable else None,
        )
        reply = await self._write(held, executions.finish(held.keys, end))
        if reply is None:
            return
        if end.dead_letter is not None:
            self._dead_letters.written(self._notice(held, reply.dlq_id, error), reply.dlq_trimmed)
        self._finished(held, "cancelled")

    async def definition_gone(
        self,
        keys: Keys,
        entry: Entry,
        begun: Begun,
        execution_id: str,
        times: lease.Times,
        reason: str,
        found_hash: str | None,
    ) -> None:
        """Its flow's body is gone or does not match: the execution cannot go on anywhere (ledger F6)."""
        error = records.definition_gone(begun.control.get("flow_hash"), found_hash, reason)
        end = Finish(
            execution_id=execution_id,
            token=begun.token,
            step=int(begun.control.get("step", 0)) + 1,
            status="error",
            stream=entry.stream,
            entry_id=entry.entry_id,
            retention_ms=self._settings.retention_ms,
            error=jsontext.dumps(error),
        )
        answer = await self._sender.send(executions.finish(keys, end), until=times.horizon)
        self._stats.add("poison_acked")
        logs.error("flow.definition_gone", execution_id=execution_id, reason=reason, saved=isinstance(answer, Value))

    async def hand_on(self, held: Held, *, lower_lost: bool) -> None:
        """Release the lease and let any supervisor have the carrier at once (DECISIONS 5)."""
        held.settling = True
        call = executions.hand_on(
            held.keys,
            HandOn(
                execution_id=held.execution_id,
                token=held.token,
                stream=held.stream,
                entry_id=held.entry_id,
                consumer=self._settings.consumer,
                active_ms_delta=held.unsaved_ms,
                lower_lost=lower_lost,
            ),
        )
        answer = await self._sender.send(call, until=held.lease.horizon, give_up=held.abandoned)
        if isinstance(answer, Value):
            self._stats.add("handed_on")
            logs.info("carrier.handed_on", execution_id=held.execution_id, next_node=held.node_id)
        elif isinstance(answer, Refused):
            self._refused(held, call, answer)

    # -- building blocks --------------------------------------------------------------------------------------------

    async def _write(self, held: Held, call: Call[Any]) -> Any:
        """The value; None when it was refused (somebody else has the execution) or given up."""
        if call.name != "executions.commit" and not call.name.startswith("failures"):
            held.settling = True
        answer = await self._send_held(held, call)
        held.settling = held.settling and isinstance(answer, Value) and call.name != "executions.retake"
        if isinstance(answer, Value):
            return answer.value
        self._not_written(held, call, answer)
        return None

    def _not_written(self, held: Held, call: Call[Any], answer: Refused | None) -> None:
        if answer is not None:
            self._refused(held, call, answer)
        else:
            self._stats.add("answers_dropped")
            logs.error("write.given_up", call=call.name, execution_id=held.execution_id)

    def _refused(self, held: Held, call: Call[Any], answer: Refused) -> None:
        self._stats.add("refused_writes")
        logs.warning(
            "write.refused",
            call=call.name,
            execution_id=held.execution_id,
            token=held.token,
            reason=answer.reason,
            detail=answer.detail,
        )

    async def _send_held(self, held: Held, call: Call[Any]) -> Any:
        """Sent until it is known; while it waits, it counts against what a host may hold (DECISIONS 9)."""
        numbers: list[int] = []
        try:
            return await self._sender.send(
                call,
                give_up=held.abandoned,
                waits=lambda: numbers.append(self._answers.add(weight(call), held.abandoned.set)),
            )
        finally:
            for number in numbers:
                self._answers.remove(number)

    def _finish(
        self,
        held: Held,
        status: str,
        *,
        node_id: str | None = None,
        result: bytes | None = None,
        output: bytes | None = None,
        error: dict[str, Any] | None = None,
        timing: bytes | None = None,
        active_ms: int = 0,
        state: dict[str, bytes] | None = None,
        branch: str | None = None,
        cancel_reason: str | None = None,
        letter: DeadLetter | None = None,
        deterministic: bool = False,
    ) -> Finish:
        return Finish(
            execution_id=held.execution_id,
            token=held.token,
            step=held.step + 1,
            status=status,
            stream=held.stream,
            entry_id=held.entry_id,
            retention_ms=self._settings.retention_ms,
            node_id=node_id,
            result=result,
            timing=timing,
            output=output,
            error=None if error is None else jsontext.dumps(error),
            active_ms_delta=active_ms,
            branch=branch,
            state=state or {},
            cancel_reason=cancel_reason,
            dead_letter=letter,
            nodes=held.order + 1 if node_id is not None and node_id not in held.timings else None,
            deterministic=deterministic,
        )

    async def _end_in_error(
        self,
        held: Held,
        error: dict[str, Any],
        *,
        timing: bytes | None = None,
        letter: DeadLetter | None = None,
        deterministic: bool = False,
    ) -> None:
        """``deterministic``: it fails whenever it is tried, timeouts included (ledger S13)."""
        end = self._finish(
            held,
            "error",
            node_id=held.node_id if timing is not None else None,
            error=error,
            timing=timing,
            active_ms=held.unsaved_ms,
            letter=letter,
            deterministic=deterministic,
        )
        reply = await self._write(held, executions.finish(held.keys, end))
        if reply is None:
            return
        if letter is not None:
            self._dead_letters.written(self._notice(held, reply.dlq_id, error), reply.dlq_trimmed)
        self._finished(held, "error", error.get("message"))

    def _finished(self, held: Held, status: str, why: str | None = None) -> None:
        self._stats.add("finished")
        self._stats.add("acked")
        logs.log(
            20 if status != "error" else 30,
            "execution.finished",
            execution_id=held.execution_id,
            flow_id=held.flow_id,
            status=status,
            last_node=held.node_id,
            why=why,
        )

    async def _postpone(
        self,
        held: Held,
        delay_ms: int,
        *,
        lower_lost: bool,
        error: dict[str, Any] | None = None,
        timing: bytes | None = None,
        death: dict[str, Any] | None = None,
    ) -> None:
        request = Postpone(
            execution_id=held.execution_id,
            token=held.token,
            step=held.step + 1,
            delay_ms=delay_ms,
            copy_id=f"{held.keys.ns} {held.execution_id} {held.token}",
            copy_fields=continue_copy(
                held.fields,
                held.entry_id,
                execution_id=held.execution_id,
                flow_id=held.flow_id,
                tenant_id=held.tenant_id,
            ),
            stream=held.stream,
            entry_id=held.entry_id,
            lower_lost=lower_lost,
            node_id=held.node_id,
            timing=timing,
            active_ms_delta=held.unsaved_ms,
            error=None if error is None else jsontext.dumps(error),
            death=None if death is None else jsontext.dumps(death),
        )
        if await self._write(held, executions.postpone(held.keys, request)) is not None:
            self._stats.add("acked")

    def _letter(
        self,
        held: Held,
        entry: Entry,
        reason: str,
        cause: str,
        death: Mapping[str, Any] | None = None,
        unrunnable: Unrunnable | None = None,
    ) -> DeadLetter | None:
        """None when the guard does not let the carrier go."""
        if not self._dead_letters.allows_end(held):
            return None
        return DeadLetter(
            envelope(
                reason=reason if unrunnable is None else f"{reason}, and {unrunnable.why}",
                cause=cause,
                source_stream=self._keys.stream(entry.stream),
                source_id=entry.entry_id,
                fields=entry.fields,
                schema_version=schema_version_of(entry.fields),
                dead_lettered_at_ms=wall_ms(),
                attempts=held.attempt,
                execution_id=held.execution_id,
                flow_id=held.flow_id,
                node_id=held.node_id,
                tenant_id=held.tenant_id,
                death=death,
                raw_fields=entry.raw if unrunnable is not None and unrunnable.raw else None,
            ),
            self._settings.dlq_maxlen,
        )

    def _notice(self, held: Held, dlq_id: str, error: dict[str, Any]) -> Notice:
        return Notice(
            dlq_id=dlq_id,
            reason=str(error.get("message")),
            cause=str(error.get("cause")),
            stream=self._keys.stream(held.stream),
            entry_id=held.entry_id,
            execution_id=held.execution_id,
            delivery_count=held.attempt,
        )

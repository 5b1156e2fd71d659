"""One carrier's way through this host: admit, begin, run step after step, settle. One straight coroutine a carrier.

Owns the order of things, decides nothing itself: verdicts come from ``policy``, running a step is ``stepping``'s,
writing ``settle``'s, leases the ``lease_keeper``'s. Whatever happens in here, the carrier is either settled by a
script or still pending in Redis.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from plaita.clock import boot_ms
from plaita.errors import InputError
from plaita.ids import new_nonce
from plaita.ipc.messages import Action, Answer
from plaita.policy import begin_refusal, lease, retry
from plaita.policy.begin_refusal import Settle
from plaita.policy.carrier import Carrier, Malformed, TooNew, named_execution, read_carrier
from plaita.policy.dead_letter_guard import Verdict as GuardVerdict
from plaita.policy.lease_conflict import Verdict as ConflictVerdict
from plaita.policy.lease_conflict import judge
from plaita.store import executions, leases
from plaita.store.call import Refused, Value
from plaita.store.carriers import Entry
from plaita.store.executions import Begin, Begun, ForeignStart
from plaita.store.keys import Keys, check_tenant
from plaita.supervisor import logs
from plaita.supervisor.admission import Admission
from plaita.supervisor.breaker import Breaker, key_of
from plaita.supervisor.dead_letters import DeadLetters, Wanted
from plaita.supervisor.entries import Entries
from plaita.supervisor.executor import Died
from plaita.supervisor.flow_cache import FlowCache, FlowGone, StoredFlow
from plaita.supervisor.held import Held
from plaita.supervisor.lease_keeper import LeaseKeeper
from plaita.supervisor.sender import Sender
from plaita.supervisor.settle import Settler, Unrunnable
from plaita.supervisor.stats import Stats
from plaita.supervisor.stepping import EXECUTOR_WAIT_S, NotBegun, Stepper
from plaita.supervisor.taken import held_of
from plaita.supervisor.tenant_gate import TenantGate
from plaita.tenancy import set_current_tenant
from plaita.unix.reaper import unknown_exit


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """``holder`` is ``<instance>/<incarnation>``; times in ms."""

    holder: str
    lease_ttl_ms: int
    max_deliveries: int
    registry: bool
    ask_liveness: bool = True


class Dispatch:
    """``leaving`` is true once no further step may start here. ``holder_record(instance)`` reads the registry:
    (incarnation, status), or None when it has no entry or cannot be read."""

    def __init__(
        self,
        settings: DispatchSettings,
        keys: Keys,
        sender: Sender,
        stepper: Stepper,
        keeper: LeaseKeeper,
        flows: FlowCache,
        entries: Entries,
        settler: Settler,
        dead_letters: DeadLetters,
        admission: Admission,
        tenants: TenantGate,
        breaker: Breaker,
        stats: Stats,
        *,
        leaving: Callable[[], bool],
        holder_record: Callable[[str], Awaitable[tuple[str, str] | None]],
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._tenants: dict[str, Keys] = {keys.tenant: keys}
        self._sender = sender
        self._stepper = stepper
        self._keeper = keeper
        self._flows = flows
        self._entries = entries
        self._settler = settler
        self._dead_letters = dead_letters
        self._admission = admission
        self._tenant_gate = tenants
        self._breaker = breaker
        self._stats = stats
        self._leaving = leaving
        self._holder_record = holder_record
        # of each execution in hand: carriers of it that came meanwhile and must not be acked
        self._behind: dict[tuple[str, str], list[Entry]] = {}

    async def carry(self, entry: Entry) -> None:
        """See the carrier to its end on this host. Never raises but CancelledError: a bug in here is logged, and the
        carrier, still pending, is delivered again when its lease has run out."""
        try:
            await self._carry(entry)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - one carrier's bug must not take the supervisor down
            self._stats.add("failed")
            logs.error(
                "dispatch.bug", entry_id=entry.entry_id, error=repr(error), traceback="".join(traceback.format_exc())
            )

    async def _carry(self, entry: Entry) -> None:
        carrier = read_carrier(entry.fields, queue=self._keys.stream(entry.stream), entry_id=entry.entry_id)
        if not await self._admission.admits(carrier, entry):
            return
        if isinstance(carrier, Malformed):
            await self._give_up(entry, carrier.reason, "malformed", raw=True)
            return
        if isinstance(carrier, TooNew):
            reason = f"unsupported schema_version={carrier.schema_version}"
            if await self._give_up(entry, reason, "schema", schema_rejected=True):
                self._stats.add("schema_rejected")
            return
        try:
            tenant = check_tenant(carrier.tenant_id)
        except InputError as error:
            await self._give_up(entry, str(error), "malformed", raw=True)
            return
        if self._leaving():
            await self._entries.release(entry)
            return
        if not await self._admission.runs_here(carrier, entry):
            return
        set_current_tenant(tenant)  # in this carrier's task alone (ledger T1)
        keys = self._keys_of(tenant)
        if carrier.kind == "retry" and not await self._may_wake(keys, carrier, entry):
            return
        begun = await self._begin(keys, carrier, entry)
        if begun is not None:
            await self._hold(keys, carrier.execution_id, carrier.resume_type, entry, *begun)

    def _keys_of(self, tenant: str) -> Keys:
        found = self._tenants.get(tenant)
        if found is None:
            if len(self._tenants) > 4096:
                self._tenants = {self._keys.tenant: self._keys}
            found = self._tenants[tenant] = self._keys.for_tenant(tenant)
        return found

    # -- begin -----------------------------------------------------------------------------------------

    async def _may_wake(self, keys: Keys, carrier: Carrier, entry: Entry) -> bool:
        """A retry of an execution in ``error`` first compares its flow: one that changed is not woken, and can be once
        the definition is right again (ledger S3)."""
        until = boot_ms() + self._settings.lease_ttl_ms
        answer = await self._sender.send(executions.load(keys, carrier.execution_id), until=until)
        if answer is None:
            await self._entries.let_others(entry)
            return False
        row = answer.value if isinstance(answer, Value) else None
        if row is None or row.status != "error":
            return True  # begin says what it is
        try:
            flow = await self._flows.of_row(keys, row.control, until)
        except FlowGone as error:
            logs.warning(
                "retry.refused",
                execution_id=carrier.execution_id,
                reason="definition_gone",
                detail=str(error),
                advice="it stays in error; put the definition it began with back and retry again",
            )
            await self._entries.ack(entry)
            return False
        if flow is None:
            await self._entries.let_others(entry)
        return flow is not None

    async def _begin(self, keys: Keys, carrier: Carrier, entry: Entry) -> tuple[Begun, lease.Times] | None:
        foreign = None
        if carrier.params is not None and carrier.flow_id is not None:
            foreign = ForeignStart(
                carrier.flow_id,
                carrier.version or "latest",
                carrier.params,
                carrier.dedup_key,
                self._admission.too_old_after_ms(carrier),
            )
        request = replace(
            self._request(carrier.execution_id, entry),
            foreign=foreign,
            kind=carrier.kind,
            data=carrier.data,
            event_id=carrier.event_id,
            wait=carrier.wait,
        )
        answer = await self._ask_to_begin(keys, request)
        if isinstance(answer, Refused) and answer.reason == "leased" and self._of_an_earlier_life(answer.detail):
            # A reclaim that knows the execution by the entry's fields has seen to it; here only the payload names it.
            until = boot_ms() + self._settings.lease_ttl_ms
            await self._sender.send(leases.drop(keys, carrier.execution_id, answer.detail), until=until)
            answer = await self._ask_to_begin(keys, request)
        if isinstance(answer, tuple):
            self._tell_how(carrier, answer[0])
            return answer
        if answer is None:
            await self._entries.let_others(entry)  # or it would lie here until it had been idle for long
            return None
        if answer.reason == "leased":
            await self._conflict(carrier, entry, answer.detail)
        elif answer.reason == "dedup_hit":
            await self._deduplicated(keys, carrier, entry, answer.detail)
        elif begin_refusal.rule(answer.reason, answer.detail).settle is Settle.TENANT:
            await self._tenant_gate.refused(keys, carrier, entry, answer)
        else:
            await self._refused(carrier, entry, answer)
        return None

    def _of_an_earlier_life(self, lease_value: str) -> bool:
        """Whether the holder is this instance before it was started anew: dead for certain, by the registry (DECISIONS
        1, docs/decisions/0002)."""
        there = leases.parse_lease(lease_value)
        instance, _, incarnation = self._settings.holder.rpartition("/")
        if not self._settings.registry or there is None:
            return False
        return there.instance_id == instance and there.incarnation != incarnation

    def _tell_how(self, carrier: Carrier, begun: Begun) -> None:
        """What a resume came to, where it is another thing than its type says."""
        if begun.normalised:
            self._stats.add("resumes_normalised")
            logs.info("resume.normalised", execution_id=carrier.execution_id, kind=carrier.kind, to="continue")
        elif carrier.kind == "retry" and not begun.retried:
            logs.warning("retry.of_running", execution_id=carrier.execution_id, effect="it goes on from its checkpoint")
        elif begun.retried:
            logs.info("retry.woken", execution_id=carrier.execution_id, next_node=begun.control.get("next_node"))

    async def _deduplicated(self, keys: Keys, carrier: Carrier, entry: Entry, detail: str) -> None:
        """A start whose dedup key another execution has: never a second one, and that one goes on (ledger S2)."""
        status, _, other = detail.partition(" ")
        logs.info("start.deduplicated", execution_id=carrier.execution_id, first=other, status=status)
        if status in ("pending", "running"):
            await self._entries.continue_other(keys, entry, other, carrier.flow_id or "")
        else:
            await self._entries.ack(entry)

    def _request(self, execution_id: str, entry: Entry) -> Begin:
        """This host asks for the lease with this entry."""
        return Begin(
            execution_id=execution_id,
            holder=self._settings.holder,
            nonce=new_nonce(),
            lease_ttl_ms=self._settings.lease_ttl_ms,
            stream=entry.stream,
            entry_id=entry.entry_id,
            max_lost=self._settings.max_deliveries,
            expected_epoch=self._tenant_gate.expected_epoch,
        )

    async def _ask_to_begin(self, keys: Keys, request: Begin) -> tuple[Begun, lease.Times] | Refused | None:
        sent_at = boot_ms()
        answer = await self._sender.send(executions.begin(keys, request), until=sent_at + self._settings.lease_ttl_ms)
        if isinstance(answer, Value):
            return answer.value, lease.times(sent_at, self._settings.lease_ttl_ms)
        if answer is None:
            logs.warning("begin.unanswered", execution_id=request.execution_id, entry_id=request.entry_id)
        return answer

    async def _conflict(self, carrier: Carrier, entry: Entry, lease_value: str) -> None:
        self._stats.add("lease_conflicts")
        there = leases.parse_lease(lease_value)
        record = await self._holder_record(there.instance_id) if there is not None else None
        verdict = judge(
            resume_type=carrier.resume_type,
            registry=self._settings.registry,
            lease_readable=there is not None,
            is_holders_carrier=there is not None and (there.stream, there.entry_id) == (entry.stream, entry.entry_id),
            holder_incarnation_registered=record is not None and there is not None and record[0] == there.incarnation,
            holder_status=record[1] if record is not None else None,
            ask_liveness=self._settings.ask_liveness,
        )
        logs.info(
            "lease.conflict",
            execution_id=carrier.execution_id,
            entry_id=entry.entry_id,
            holder=there.holder if there is not None else lease_value,
            verdict=verdict.value,
        )
        if verdict is ConflictVerdict.LEAVE_PENDING:
            behind = self._behind.get((carrier.tenant_id, carrier.execution_id))
            if behind is not None:
                behind.append(entry)
            else:
                await self._entries.let_others_if_let_go(carrier.tenant_id, carrier.execution_id, lease_value, entry)
        else:
            acked = await self._entries.ack_duplicate(carrier.tenant_id, carrier.execution_id, entry)
            if acked and carrier.resume_type in ("continue", "retry"):
                logs.warning(
                    "resume.no_effect",
                    execution_id=carrier.execution_id,
                    advice="its holder lives and runs it; if it is really stuck, cancel it and start anew",
                )

    async def _refused(self, carrier: Carrier, entry: Entry, answer: Refused) -> None:
        ruling = begin_refusal.rule(answer.reason, answer.detail)
        logs.log(
            20 if ruling.settle is Settle.ACK else 30,
            "begin.refused",
            execution_id=carrier.execution_id,
            reason=answer.reason,
            detail=answer.detail,
            explanation=ruling.explanation,
        )
        if answer.reason == "too_old":
            self._stats.add("carriers_too_old")
        if ruling.settle is Settle.POISON:
            self._stats.add("poison_acked")
        if ruling.settle in (Settle.ACK, Settle.POISON):
            if ruling.while_status is None:
                await self._entries.ack(entry)
            else:
                await self._entries.ack_refused(carrier.tenant_id, carrier.execution_id, entry, ruling.while_status)
        elif ruling.settle is Settle.DEAD_LETTER:
            reason = f"{answer.reason}: {ruling.explanation} ({answer.detail})" if answer.detail else ruling.explanation
            await self._give_up(entry, reason, answer.reason, carrier=carrier)

    # -- giving up ----------------------------------------------------------------------------------------

    async def _give_up(
        self,
        entry: Entry,
        reason: str,
        cause: str,
        *,
        carrier: Carrier | None = None,
        schema_rejected: bool = False,
        raw: bool = False,
    ) -> bool:
        """To the dead letters if the guard allows it (ledger Q4); False when the carrier stays pending."""
        execution = self._execution_of(entry, carrier)
        wanted = Wanted(entry, reason, cause, execution, carrier, schema_rejected, raw)
        verdict = await self._dead_letters.dead_letter_if_allowed(wanted)
        if verdict is GuardVerdict.END and execution is not None:
            await self._end_spent(*execution, entry, Unrunnable(reason, raw))
        return verdict in (GuardVerdict.LET_GO, GuardVerdict.LET_GO_WITH_COPY)

    def _execution_of(self, entry: Entry, carrier: Carrier | None) -> tuple[Keys, str] | None:
        """Whose execution the carrier is, as far as it says so."""
        named = (carrier.execution_id, carrier.tenant_id) if carrier is not None else named_execution(entry.fields)
        if named is None:
            return None
        try:
            return self._keys_of(check_tenant(named[1])), named[0]
        except InputError:
            return None

    async def _end_spent(self, keys: Keys, execution_id: str, entry: Entry, unrunnable: Unrunnable) -> None:
        """The last carrier of an execution that has no budget left cannot be run: the end, under the lease like all."""
        begun = await self._ask_to_begin(keys, self._request(execution_id, entry))
        if isinstance(begun, tuple):
            await self._hold(keys, execution_id, None, entry, *begun, spent=unrunnable)

    # -- holding ------------------------------------------------------------------------------------------

    async def _hold(
        self,
        keys: Keys,
        execution_id: str,
        resume_type: str | None,
        entry: Entry,
        begun: Begun,
        times: lease.Times,
        *,
        spent: Unrunnable | None = None,
    ) -> None:
        """``spent``: it must not run any more, but end, by a carrier that cannot be run."""
        behind: list[Entry] = []
        self._behind[keys.tenant, execution_id] = behind
        try:
            await self._hold_alone(keys, execution_id, resume_type, entry, begun, times, spent)
        finally:
            if self._behind.get((keys.tenant, execution_id)) is behind:
                del self._behind[keys.tenant, execution_id]
            for waiting in behind:
                await self._entries.let_others(waiting)  # it may be the event that the execution waits for by now
        await self._tenant_gate.place_free(keys.tenant)

    async def _hold_alone(
        self,
        keys: Keys,
        execution_id: str,
        resume_type: str | None,
        entry: Entry,
        begun: Begun,
        times: lease.Times,
        spent: Unrunnable | None,
    ) -> None:
        try:
            flow = await self._flows.of_row(keys, begun.control, times.kill_at)
        except FlowGone as error:
            await self._settler.definition_gone(keys, entry, begun, execution_id, times, str(error), error.found_hash)
            return
        if flow is None:
            return  # Redis did not answer in time; the lease runs out and the carrier is delivered again
        held = held_of(keys, execution_id, entry, begun, times, flow, self._settings.holder)
        if begun.cancel or resume_type == "cancel":
            held.cancel = begun.cancel_reason or "cancelled"
        self._keeper.add(held)
        try:
            if held.cancel is not None and (begun.lost_exhausted or spent is not None):
                await self._settler.cancelled(held, entry, spent)  # it runs nothing: it needs no budget (ledger S8)
            elif begun.lost_exhausted or spent is not None:
                await self._settler.exhausted(held, entry, begun, spent)
            else:
                await self._advance(held, entry, flow)
                if held.lease_lost:
                    await self._entries.let_others(entry)
        finally:
            self._keeper.remove(held)
            self._stepper.let_go(held)
            self._breaker.nothing(key_of(held), held.execution_id)

    async def _advance(self, held: Held, entry: Entry, flow: StoredFlow) -> None:
        """Step after step, until the execution ends or is let go."""
        action = held.action
        while True:
            if held.lease_lost:
                return
            if held.cancel is not None and not (held.tenant_shut and held.waiting):
                await self._cancel(held, flow)
                return
            if self._leaving() or held.tenant_shut:
                await self._settler.hand_on(held, lower_lost=True)
                return
            if not lease.may_start_step(boot_ms(), held.lease):
                await asyncio.sleep(0.05)  # the keeper renews it, or finds it lost
                continue
            delay_ms = self._breaker.delay_ms(held) if action != "timed_out" else None  # that is told here or nowhere
            if delay_ms is not None:
                await self._settler.postpone_uncounted(held, delay_ms)
                return
            if not await self._stepper.have_executor(held):
                logs.warning("dispatch.no_executor", execution_id=held.execution_id, waited_s=EXECUTOR_WAIT_S)
                await self._settler.hand_on(held, lower_lost=True)
                return
            outcome = await self._stepper.run(held, flow, action)
            if isinstance(outcome, NotBegun):
                continue  # with another executor: no step was lost
            if outcome is None:
                return
            following = await self._settle(held, entry, outcome)
            if following is None:
                return
            action = following

    async def _cancel(self, held: Held, flow: StoredFlow) -> None:
        """The end that was asked for. A node in its wait, or one that has not gone on from it yet, is told first, once,
        for as long as a kill grace, so that it can undo what it began; whatever comes of it, the execution is cancelled
        (ledger S4, S8)."""
        if (
            held.undone_by_cancel
            and lease.may_start_step(boot_ms(), held.lease)
            and await self._stepper.have_executor(held)
        ):
            outcome = await self._stepper.run(held, flow, "cancelled")
            if not isinstance(outcome, Answer) or outcome.kind == "failed":
                logs.warning("cancel.undo_failed", execution_id=held.execution_id, node_id=held.node_id)
            if held.lease_lost:
                return
        await self._settler.cancelled(held)

    # -- what became of it -----------------------------------------------------------------------------------

    async def _settle(self, held: Held, entry: Entry, outcome: Answer | Died) -> Action | None:
        """Write down what became of a step. The action of the next one, or None when the carrier is let go."""
        elapsed = max(0, boot_ms() - held.step_started)
        reason = held.executor.stop_reason if held.executor is not None else None
        if isinstance(outcome, Died):
            reason = outcome.stop_reason
        if reason == "timeout":
            self._breaker.lived(key_of(held), held.execution_id)
            self._stats.add("step_timeouts")
            held.active_ms += elapsed
            held.unsaved_ms += elapsed
            return "timed_out"
        if isinstance(outcome, Answer) and outcome.kind in ("advanced", "ended", "suspended"):
            self._stats.add("steps")
            self._breaker.lived(key_of(held), held.execution_id)
            return held.action if await self._settler.answered(held, outcome, elapsed) else None
        held.active_ms += elapsed
        held.unsaved_ms += elapsed
        if reason == "lease" or held.lease_lost:
            return None  # whoever has the execution now decides; nothing may be written
        if reason == "cancel":
            return held.action  # the loop sees the cancel before it starts another step
        if reason == "drain":
            self._stats.add("killed")
            await self._settler.hand_on(held, lower_lost=True)
            return None
        if isinstance(outcome, Died):
            return await self._after_death(held, entry, outcome)
        if outcome.kind == "failed":
            self._stats.add("step_failures")
            self._breaker.lived(key_of(held), held.execution_id)
            await self._settler.failed(held, entry, outcome)
            return None
        return await self._stopped_by_others(held, entry)

    async def _stopped_by_others(self, held: Held, entry: Entry) -> Action | None:
        """A SIGTERM that did not come from here: from a person, or to all of a unit's processes at its stop. The latter
        is a drain like any other; the former a death, so that a node that sends it to itself does not do so for
        ever."""
        if self._leaving():
            await self._settler.hand_on(held, lower_lost=True)
            return None
        pid = held.executor.pid if held.executor is not None else None
        return await self._after_death(held, entry, Died(unknown_exit(pid or 0), None, "SIGTERM from outside"))

    async def _after_death(self, held: Held, entry: Entry, died: Died) -> Action | None:
        if not self._keeper.stood_still:  # else it is no fault of the node
            self._breaker.died(key_of(held), held.execution_id, died.cause)
        verdict = retry.after_death(lost=held.lost, max_deliveries=self._settings.max_deliveries)
        if verdict.next is retry.Next.AGAIN and not self._leaving():
            return held.action if await self._settler.retake(held, died) else None
        if verdict.next is retry.Next.AGAIN:
            await self._settler.hand_on(held, lower_lost=False)
        elif verdict.next is retry.Next.LATER:
            await self._settler.postpone_after_death(held, died, verdict.delay_ms)
        else:
            await self._settler.executor_died(held, entry, died, verdict.reason)
        return None

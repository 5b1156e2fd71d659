"""A model of the scripts under everything that may happen to them: several holders, calls that come twice and late,
leases that run out, waits that events, timers and cancels race for, retries of what ended, carriers of any kind from
anywhere, counters and single keys that are lost or come back from a backup (issues "No carrier is lost", "Waiting").

What must hold after each step stands in the invariants of ``Scripts``. What the harness itself breaks is said in two
places and nowhere else: ``restore_key`` (an operator who brings a row back also repairs what he brought out of step),
and ``damaged`` (once two keys of one execution's fence were brought back since its last begin, they are a whole
backup, which no script can tell from the truth).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from plaita.store import carriers, delayed, executions, failures, flows, leases
from plaita.store.call import Answer, Call, Refused, Value
from plaita.store.carriers import Entry, Take
from plaita.store.executions import (
    Begin,
    Commit,
    DeadLetter,
    Finish,
    HandOn,
    Postpone,
    Resumed,
    ResumeRequest,
    Retake,
    Start,
    Suspend,
    Wake,
    Woken,
)
from plaita.store.failures import CountFailure
from plaita.store.keys import STATUSES, TERMINAL, Keys
from plaita.store.leases import Beat, Renewal
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import Server

TTL = 3_600_000
NAMES = ("x", "y", "z")
HOSTS = ("host1", "host2", "host3")
MAX_LOST = 1_000_000
WORTHWHILE = (  # answers that every run must have seen: a model that never gets anywhere shows nothing
    "executions.begin Value", "executions.begin leased", "executions.commit Value", "executions.commit done before",
    "executions.commit fence", "executions.finish Value", "executions.postpone Value", "executions.hand_on Value",
    "executions.hand_on lease_lost", "executions.retake Value", "failures.count_failure Value",
    "executions.suspend Value", "executions.suspend done before", "executions.suspend fence",
    "executions.wake woken", "executions.wake not_waiting", "executions.wake terminal",
    "executions.request_resume enqueued", "executions.request_resume held", "executions.begin suspended",
    "begun retried", "begun woken", "executions.commit of a woken node", "carriers.ack_refused Value",
)  # fmt: skip
RARE = (  # what the long run must have seen besides
    "executions.finish of a woken node", "timer woke", "executions.wake already_woken", "executions.wake stale_wait",
    "executions.wake cancelled", "timer of a wait that a cancel ends", "begun to cancel a wait",
    "executions.request_resume g1_wakeups_exhausted", "executions.begin g1_wakeups_exhausted",
    "executions.request_resume already_suspended", "executions.begin stale_wait", "executions.begin no_checkpoint",
    "begun normalised", "begun by event", "begun by timeout", "carriers.ack_refused changed",
)  # fmt: skip
WORK = frozenset({"commit", "suspend", "finish", "postpone", "hand_on", "retake", "count_failure", "renew"})
DEEDS = (
    ("commit",) * 7
    + ("take_and_begin",) * 8
    + ("resend", "suspend") * 5
    + ("wake", "finish") * 4
    + ("resume", "retry") * 3
    + ("lease_ends", "timer") * 3
    + ("postpone", "hand_on", "retake", "count_failure", "renew", "settle_verdict", "save_key", "cancel") * 2
    + ("take", "carrier_from_anywhere") * 2
    + ("begin", "promote", "give_back", "key_is_lost", "restore_key", "restart")
)
SAVED = ("row", "fence", "fencegen", "lease")
LOSABLE = ("fence", "fencegen", "noderetry", "noderefetch", "nofail", "g1wakeups")
KINDS = ("start", "continue", "retry", "event", "timeout", "cancel")
RESUMES = ("event", "timeout")
ENDS = ("error", "error", "error", "completed", "cancelled")
picks = st.integers(min_value=0, max_value=999)


@dataclass
class Row:
    """What the row of one execution must say."""

    status: str = "pending"
    step: int = 0
    next_node: str = ""
    attempts: int = 0
    lost: int = 0
    lost_node: str | None = None
    active_ms: int = 0
    retried: frozenset[str] = frozenset()
    failure: str = ""
    wait: str = ""
    woken: str = ""
    wake_data: str = ""
    wake_id: str = ""
    timed: bool = False  # the wait has a timer
    accepted: dict[int, tuple[str, bytes]] = field(default_factory=dict)  # step -> token, result; of this row's history
    nodes: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # node -> result, timing

    def handed_out(self) -> None:
        self.lost = self.lost + 1 if self.lost_node == self.next_node else 1
        self.lost_node = self.next_node

    @property
    def waits(self) -> bool:
        return self.status == "suspended" and not self.woken

    def wake(self, kind: str, data: str, event_id: str) -> None:
        self.woken, self.wake_data, self.wake_id = kind, data, event_id
        self.timed = False

    def no_wait(self) -> None:
        self.wait = self.woken = self.wake_data = self.wake_id = ""
        self.timed = False

    def accept(self, step: int, token: str, node: str, result: bytes, closed: bytes) -> None:
        assert step not in self.accepted
        assert (self.status, step) == ("running", self.step + 1)
        self.accepted[step] = (token, result)
        self.nodes[node] = (result, closed)
        self.step = step

    def copy(self) -> Row:
        return replace(self, accepted=dict(self.accepted), nodes=dict(self.nodes))


@dataclass
class Execution:
    row: Row | None = None
    newest: str = ""  # the token given last
    restored: set[str] = field(default_factory=set)  # fence keys brought back since then
    of_node: dict[str, int] = field(default_factory=dict)
    of_all: int = 0
    wakeups: int = 0
    deterministic: int = 0
    odd_lease: bool = False  # a lease or a row was brought back: they need not fit
    era: int = 0  # raised when its row is brought back: what was woken then may be woken again

    def node_is_done(self, node: str) -> None:
        """A success of any node clears its own failures, and the deterministic ones in a row."""
        self.deterministic = 0
        assert self.row is not None
        if node in self.row.retried:
            self.row.retried -= {node}
            self.of_node.pop(node, None)

    @property
    def damaged(self) -> bool:
        return {"fence", "fencegen"} <= self.restored


@dataclass
class Grip:
    """What a holder believes it holds. It may be wrong by now, and acts all the same."""

    host: str
    holder: str
    name: str
    token: str
    lease_value: str
    step: int
    node: str
    stream: str
    entry_id: str


@dataclass
class Sent:
    """A call that was sent, to be sent again at any later time."""

    call: Call[Any]
    absorb: Callable[[Answer[Any]], None]
    before: Callable[[], None] = lambda: None  # what must be seen just before it is sent


@dataclass
class Saved:
    """A key as it was once. ``row``: what the model knew of the row then."""

    name: str
    word: str
    dump: bytes
    row: Row | None


class Scripts(RuleBasedStateMachine):
    """The rules are what the world does; the invariants are what plaita promises."""

    server: Server
    counts: ClassVar[Counter[str]] = (
        Counter()
    )  # of answers, over a whole run: a model that never gets anywhere shows nothing

    def __init__(self) -> None:
        super().__init__()
        self.server.flush()
        self.runner = SyncRunner(self.server.url, name="model")
        self.keys = Keys()
        self.executions = {name: Execution() for name in NAMES}
        self.incarnations = dict.fromkeys(HOSTS, 0)
        self.in_hand: dict[str, list[Entry]] = {host: [] for host in HOSTS}
        self.grips: list[Grip] = []
        self.sent: list[Sent] = []
        self.saved: list[Saved] = []
        self.verdicts: list[Sent] = []  # decided, not yet sent
        self.nonces = 0
        self.events = 0
        self.wakes: dict[bytes, tuple[str, int, str]] = {}  # carriers of wakes by id: execution, era, wait
        self.runner.do(flows.put(self.keys, "f", None, "a" * 64, b"{}"))

    def teardown(self) -> None:
        self.runner.close()

    # -- helpers -----------------------------------------------------------------------------------

    def nonce(self) -> str:
        self.nonces += 1
        return f"n{self.nonces}"

    def holder(self, host: str) -> str:
        return f"{host}/i{self.incarnations[host]}"

    def raw(self, *command: str | bytes | int) -> Any:
        return self.server.do(*command)

    def send(
        self, call: Call[Any], absorb: Callable[[Answer[Any]], None], before: Callable[[], None] = lambda: None
    ) -> Answer[Any]:
        sent = Sent(call, absorb, before)
        self.sent.append(sent)
        return self.deliver(sent)

    def deliver(self, sent: Sent) -> Answer[Any]:
        sent.before()
        answer = self.runner.run(sent.call)
        self.note(f"{sent.call.name} {outcome(answer)}")
        sent.absorb(answer)
        return answer

    def note(self, what: str) -> None:
        self.counts[what] += 1

    def row_of(self, name: str) -> Row:
        row = self.executions[name].row
        assert row is not None
        return row

    def fence_intact(self, name: str, token: str) -> bool:
        found = self.raw("MGET", self.keys.fence(name), self.keys.fencegen(name))
        return [text(part) for part in found] == [token, token.partition(":")[0]]

    def may_write(self, name: str, token: str) -> None:
        """A write under ``token`` was accepted: it must be the newest, unless a whole backup of the fence was brought
        back, which is an older truth."""
        execution = self.executions[name]
        assert execution.damaged or token == execution.newest, f"{token} wrote after {execution.newest}"

    # -- the one rule: it draws its deed by weight, so that rare states are on the way of most examples ---------------

    @rule(
        deed=st.sampled_from(DEEDS),
        pick=picks,
        late=st.booleans(),
        flag=st.booleans(),
        host=st.sampled_from(HOSTS),
        name=st.sampled_from(NAMES),
    )
    def act(self, deed: str, pick: int, late: bool, flag: bool, host: str, name: str) -> None:
        needed = {"begin": any(self.in_hand.values()), "give_back": any(self.in_hand.values())}
        needed |= {"settle_verdict": self.verdicts, "restore_key": self.saved}
        if not needed.get(deed, self.grips or deed not in WORK):
            deed = "take_and_begin"
        if deed in WORK:
            self.work(deed, choose(pick, self.grips if late else self.grips[-2:]), pick, flag)
            return
        match deed:
            case "take_and_begin":  # the usual way: nothing between the two
                self.take(host, False, 0)
                if self.in_hand[host]:
                    self.begin(pick)
            case "take":
                self.take(host, flag, choose(pick, (0, 0, TTL)))
            case "begin":
                self.begin(pick)
            case "give_back":
                self.give_back(pick)
            case "settle_verdict":
                self.settle_verdict(pick)
            case "cancel":
                self.cancel(name)
            case "resend":  # any call that was ever sent comes once more
                self.deliver(choose(pick, self.sent if late else self.sent[-6:]))
            case "lease_ends":
                self.lease_ends(name, flag)
            case "key_is_lost":
                self.key_is_lost(name, choose(pick, LOSABLE))
            case "save_key":
                self.save_key(name, choose(pick, SAVED))
            case "restore_key":
                self.restore_key(pick)
            case "restart":
                self.restart(host)
            case "promote":
                self.promote()
            case "wake":
                self.wake(self.rather(pick, name, lambda row: row.status == "suspended"), pick, late, flag)
            case "timer":
                self.timer(self.rather(pick, name, lambda row: row.timed))
            case "resume":
                self.resume(name, choose(pick, ("retry", "continue")))
            case "retry":
                self.retry(self.rather(pick, name, lambda row: row.status == "error"), host, choose(pick, (1, 2, 3)))
            case "carrier_from_anywhere":
                self.carrier_from_anywhere(self.rather(pick, name, lambda row: row.waits), pick, late, flag)

    def rather(self, pick: int, name: str, fits: Callable[[Row], bool]) -> str:
        """Mostly an execution that this can do something for, else ``name``."""
        fitting = [name for name in NAMES if fits(self.row_of(name))]
        return choose(pick, fitting) if fitting and pick % 4 else name

    def work(self, deed: str, grip: Grip, pick: int, flag: bool) -> None:
        """A holder does something with what it holds, or believes to hold."""
        match deed:
            case "commit":
                self.commit(grip)
            case "suspend":
                self.suspend(grip, flag)
            case "finish":
                self.finish(grip, choose(pick, ENDS), flag)
            case "postpone":
                self.postpone(grip, flag, choose(pick, (0, 0, TTL)))
            case "hand_on":
                self.hand_on(grip, flag)
            case "retake":
                self.retake(grip)
            case "count_failure":
                self.count_failure(grip)
            case "renew":
                self.renew(grip, flag)

    # -- start, take, begin ------------------------------------------------------------------------

    @initialize()
    def start_all(self) -> None:
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        request = Start(name, "f", input=b"{}", payload=b'{"type":"start"}')

        def absorb(answer: Answer[Any]) -> None:
            execution = self.executions[name]
            if execution.row is None:
                assert isinstance(answer, Value)
                execution.row = Row()
            else:
                assert isinstance(answer, Value) or answer == Refused("id_taken", "f")

        self.send(executions.start(self.keys, request), absorb)

    def take(self, host: str, adopt: bool, idle: int) -> None:
        request = Take(
            consumer=host,
            count=4,
            min_idle_ms=idle,
            holder=self.holder(host),
            adopt=adopt,
            in_hand=[f"{entry.stream} {entry.entry_id}" for entry in self.in_hand[host]],
        )

        def absorb(answer: Answer[Any]) -> None:
            assert isinstance(answer, Value)
            self.in_hand[host] += answer.value.entries

        self.send(carriers.take(self.keys, request), absorb)

    def restart(self, host: str) -> None:
        """A new life of a host; what the old one held it may still write, late."""
        self.incarnations[host] += 1
        self.in_hand[host] = []

    def begin(self, pick: int) -> None:
        self.begin_with(*choose(pick, [(host, entry) for host in HOSTS for entry in self.in_hand[host]]))

    def begin_with(self, host: str, entry: Entry) -> None:
        name = entry.fields[b"execution_id"].decode()
        self.in_hand[host].remove(entry)
        holder = self.holder(host)
        kind = kind_of(entry)
        wait = entry.fields.get(b"wait", b"").decode() or None
        data, event_id = (b'"from the carrier"', "of the carrier") if kind in RESUMES else (None, "")
        request = Begin(
            name, holder, self.nonce(), TTL, entry.stream, entry.entry_id, MAX_LOST,
            kind=kind, data=data, event_id=event_id, wait=wait,
        )  # fmt: skip

        def absorb(answer: Answer[Any]) -> None:
            if not isinstance(answer, Value):
                return
            execution, begun = self.executions[name], answer.value
            row = self.row_of(name)
            # Not by the token: a begin sent again after its generation was lost is given the same one, rightly.
            if int(begun.control["attempts"]) != row.attempts:
                self.may_begin(execution, request, begun)
                row.attempts += 1
                row.status = "running"
                row.handed_out()
                execution.newest, execution.restored = begun.token, set()
            assert row.status == "running"
            assert (begun.wait, begun.woken) == (row.wait, row.woken)
            self.gripped(host, holder, name, begun, entry)

        answer = self.send(executions.begin(self.keys, request), absorb)
        if isinstance(answer, Refused):
            self.judge(name, entry, answer)

    def may_begin(self, execution: Execution, request: Begin, begun: Any) -> None:
        """The rows that a carrier of this kind may begin, and what that does to them (ledger S3 to S7, S13)."""
        row, kind = execution.row, request.kind
        assert row is not None
        assert begun.retried == (row.status == "error")
        assert begun.normalised == (row.status == "running" and kind in RESUMES and not row.woken)
        if row.status == "error":
            assert kind == "retry"
            assert execution.wakeups < 2
            assert execution.deterministic < 12
            execution.wakeups += 1
            row.lost, row.failure = 0, ""
            self.note("begun retried")
        elif row.status == "pending":
            assert kind not in RESUMES
        elif row.waits and kind in RESUMES and not begun.cancel:
            assert request.wait in (None, row.wait)
            row.wake(kind, text(request.data), request.event_id)
            self.note(f"begun by {kind}")
        elif row.waits:
            assert begun.cancel or kind == "cancel"
            self.note("begun to cancel a wait")
        elif row.status == "suspended":
            self.note("begun woken")
        else:
            assert row.status == "running"
            if begun.normalised:
                self.note("begun normalised")
        row.timed = False

    def gripped(self, host: str, holder: str, name: str, begun: Any, entry: Entry) -> None:
        control = begun.control
        step = int(control.get("step", 0)) + 1
        assert (int(control["lost"]), step) == (self.row_of(name).lost, self.row_of(name).step + 1)
        node = control.get("next_node") or "n1"
        self.grips.append(
            Grip(host, holder, name, begun.token, begun.lease_value, step, node, entry.stream, entry.entry_id)
        )

    def judge(self, name: str, entry: Entry, refused: Refused) -> None:
        """What dispatch would send for a refused begin; sent by ``settle_verdict``, whenever that is."""
        where = ("default", name, entry.stream, entry.entry_id)
        if refused.reason == "leased":
            if kind_of(entry) in (*RESUMES, "cancel"):
                return  # acked by nobody: it may be the only thing that wakes what is just suspending (ledger L5)
            call = carriers.ack_duplicate(self.keys, *where)
        else:
            status = {"suspended": "suspended", "stale_wait": "suspended", "no_checkpoint": "pending"}
            status |= {"terminal": refused.detail, "g1_wakeups_exhausted": "error"}
            call = carriers.ack_refused(self.keys, *where, status[refused.reason])
        self.verdicts.append(Sent(call, lambda answer: None))

    def settle_verdict(self, pick: int) -> None:
        verdict = choose(pick, self.verdicts)
        self.verdicts.remove(verdict)
        self.send(verdict.call, verdict.absorb)

    def give_back(self, pick: int) -> None:
        host, entry = choose(pick, [(host, entry) for host in HOSTS for entry in self.in_hand[host]])
        self.in_hand[host].remove(entry)
        self.send(carriers.release(self.keys, host, entry.stream, entry.entry_id), lambda answer: None)

    def cancel(self, name: str) -> None:
        call = executions.request_cancel(self.keys, name, "enough", b"cancel")
        self.send(call, lambda answer: None)

    # -- what ends a wait or an error ------------------------------------------------------------------

    def wake(self, name: str, pick: int, again: bool, only_this: bool) -> None:
        """An event, new or one that came before; for whatever is waited for, or for one wait, which may be over."""
        if not (again and self.events):
            self.events += 1
        event_id = f"ev{self.events}"
        row = self.row_of(name)
        wait = choose(pick, (str(max(1, row.step - 1)), row.wait or "1")) if only_this else None
        data = json.dumps(event_id).encode()
        request = Wake(name, "event", data, event_id, b"event", {}, wait)
        facts: list[Any] = []

        def before() -> None:
            facts[:] = [self.raw("HGET", self.keys.row(name), "woken_by"), self.raw("EXISTS", self.keys.cancel(name))]

        def absorb(answer: Answer[Any]) -> None:
            assert isinstance(answer, Value)
            row = self.row_of(name)
            if text(facts[0]) == request.nonce:
                assert answer.value == Woken(row.status, True, ""), "sent again, it is done"
                return
            same = row.wake_id == event_id and wait in (None, row.wait)
            assert answer.value == Woken(row.status, *woken_as(row, same, wait, cancelled=facts[1] == 1))
            if answer.value.woken and row.waits:
                row.wake("event", text(data), event_id)

        self.send(executions.wake(self.keys, request), absorb, before)

    def timer(self, name: str) -> None:
        """The time of all that this execution ever waited for is over."""
        for member in self.raw("ZRANGE", self.keys.delayed, 0, -1):
            if text(member).startswith(f"wait plaita {name} "):
                self.raw("ZADD", self.keys.delayed, "XX", 1, member)
        self.promote()

    def promote(self) -> None:
        due: list[list[str]] = []
        cancels: set[str] = set()

        def before() -> None:
            cancels.update(name for name in NAMES if self.raw("EXISTS", self.keys.cancel(name)))
            due[:] = [text(member).split(" ") for member in self.raw("ZRANGEBYSCORE", self.keys.delayed, "-inf", 1)]

        def absorb(answer: Answer[Any]) -> None:
            assert isinstance(answer, Value)
            assert answer.value.bad == 0
            for _, _, name, wait in due:
                row = self.row_of(name)
                if row.waits and row.wait == wait and name in cancels:
                    row.timed = False
                    self.note("timer of a wait that a cancel ends")
                elif row.waits and row.wait == wait:
                    row.wake("timeout", "null", "")
                    self.note("timer woke")
                else:
                    self.note("timer of the past")

        self.send(delayed.promote(self.keys), absorb, before)

    def resume(self, name: str, kind: Any) -> None:
        """A person asks for it."""
        facts: list[Any] = []

        def before() -> None:
            facts[:] = self.raw("MGET", self.keys.lease(name), self.keys.cancel(name))
            facts.append(self.raw("HGET", self.keys.row(name), "resumed_by"))

        def absorb(answer: Answer[Any]) -> None:
            assert isinstance(answer, Value)
            row, key = self.row_of(name), self.keys.of_execution("g1wakeups", name)
            no = None
            if text(facts[2]) == request.nonce:
                pass  # sent again: answered as before, and nothing is done
            elif row.status in TERMINAL and (row.status, kind) != ("error", "retry"):
                no = ("already_terminal", "")
            elif row.status == "error" and self.executions[name].wakeups >= 2:
                no = ("g1_wakeups_exhausted", key)
            elif facts[0]:
                no = ("held", text(facts[0]))
            elif row.waits and not facts[1]:
                no = ("already_suspended", "")
            assert answer.value == Resumed(row.status, no is None, *(no or ("", "")))

        request = ResumeRequest(name, kind, kind.encode())
        self.send(executions.request_resume(self.keys, request), absorb, before)

    def retry(self, name: str, host: str, rounds: int) -> None:
        """The usual way of a fault that stays: it is retried, begun with nothing in between, and fails again."""
        for _ in range(rounds):
            if self.row_of(name).status == "running" and self.grips and self.grips[-1].name == name:
                self.finish(self.grips[-1], "error", False)
            self.resume(name, "retry")
            self.take(host, False, 0)
            mine = [entry for entry in self.in_hand[host] if entry.fields[b"execution_id"].decode() == name]
            if mine:
                self.begin_with(host, next((entry for entry in mine[::-1] if kind_of(entry) == "retry"), mine[-1]))

    def carrier_from_anywhere(self, name: str, pick: int, wake: bool, only_this: bool) -> None:
        """Of any kind: a copy made by the guard, a foreign producer's event, an operator's mistake."""
        kind = choose(pick, KINDS)
        fields = [("payload", kind.encode()), ("execution_id", name), ("tenant_id", "default"), ("foreign", "1")]
        if only_this and kind in RESUMES:
            fields.append(("wait", choose(pick, ("1", self.row_of(name).wait or "1"))))
        self.send(carriers.enqueue(self.keys, "w" if wake else "q", fields), lambda answer: None)

    # -- what a holder does with what it holds --------------------------------------------------------

    def commit(self, grip: Grip) -> None:
        step, node, token = grip.step, grip.node, grip.token
        result = json.dumps(f"{token} did {node}").encode()
        request = Commit(
            execution_id=grip.name,
            token=token,
            step=step,
            lease_ttl_ms=TTL,
            lease_value=grip.lease_value,
            node_id=node,
            result=result,
            timing=timing(token, closed=True),
            next_node=f"n{step + 1}",
            next_timing=timing(token, closed=False),
            active_ms_delta=step,
        )

        def absorb(answer: Answer[Any]) -> None:
            if not isinstance(answer, Value):
                return
            row, execution = self.row_of(grip.name), self.executions[grip.name]
            if answer.value.done_before:
                assert row.accepted[step] == (token, result)
            else:
                self.may_write(grip.name, token)
                row.accept(step, token, node, result, timing(token, closed=True))
                row.next_node = f"n{step + 1}"
                row.lost, row.lost_node = 1, row.next_node
                row.active_ms += step
                execution.node_is_done(node)
                if row.woken:
                    self.note("executions.commit of a woken node")
                row.no_wait()
            if grip.step == step:
                grip.step, grip.node = step + 1, f"n{step + 1}"

        self.send(executions.commit(self.keys, request), absorb)

    def suspend(self, grip: Grip, timed: bool) -> None:
        step, node, token = grip.step, grip.node, grip.token
        result = json.dumps(f"{token} waits at {node}").encode()
        waiting = timing(token, closed=False)
        request = Suspend(
            execution_id=grip.name,
            token=token,
            step=step,
            node_id=node,
            result=result,
            timing=waiting,
            event_type="approval",
            correlation="",
            event_filter=None,
            timeout_ms=TTL if timed else None,
            timer_fields=[("payload", b"timeout"), ("execution_id", grip.name), ("tenant_id", "default")],
            stream=grip.stream,
            entry_id=grip.entry_id,
            active_ms_delta=1,
        )

        def absorb(answer: Answer[Any]) -> None:
            if not isinstance(answer, Value):
                return
            row, execution = self.row_of(grip.name), self.executions[grip.name]
            if answer.value.done_before:
                assert row.accepted[step] == (token, result)
                return
            self.may_write(grip.name, token)
            row.accept(step, token, node, result, waiting)
            row.status, row.next_node = "suspended", node
            row.lost, row.lost_node = 0, node
            row.active_ms += 1
            execution.node_is_done(node)
            row.no_wait()
            row.wait, row.timed = str(step), timed

        self.send(executions.suspend(self.keys, request), absorb)

    def finish(self, grip: Grip, status: str, letter: bool) -> None:
        step, token, grip_node = grip.step, grip.token, grip.node
        done = status == "completed"
        result = json.dumps(f"{token} ended with {grip.node}").encode() if done else None
        request = Finish(
            execution_id=grip.name,
            token=token,
            step=step,
            status=status,
            stream=grip.stream,
            entry_id=grip.entry_id,
            retention_ms=TTL,
            node_id=grip.node,
            result=result,
            timing=timing(token, closed=True),
            output=result,
            error=None if done else b'{"message":"no"}',
            active_ms_delta=1,
            dead_letter=DeadLetter([("reason", "model")], 3) if letter else None,
            deterministic=letter,
        )

        def absorb(answer: Answer[Any]) -> None:
            if not isinstance(answer, Value) or answer.value.done_before:
                return
            row, execution = self.row_of(grip.name), self.executions[grip.name]
            self.may_write(grip.name, token)
            assert (row.status, step) == ("running", row.step + 1)
            if result is not None:
                row.accept(step, token, grip_node, result, timing(token, closed=True))
            row.status = status
            row.active_ms += 1
            if row.woken:
                self.note("executions.finish of a woken node")
            if status != "error" or not row.woken:
                row.no_wait()
            for node in row.retried:
                execution.of_node.pop(node, None)
            row.retried = frozenset()
            if status != "error":
                execution.of_all = execution.wakeups = execution.deterministic = 0
            elif letter:
                execution.deterministic += 1

        self.send(executions.finish(self.keys, request), absorb)

    def postpone(self, grip: Grip, lower: bool, delay: int) -> None:
        token, step = grip.token, grip.step
        request = Postpone(
            execution_id=grip.name,
            token=token,
            step=step,
            delay_ms=delay,
            copy_id=f"{grip.name} {token}",
            copy_fields=[("payload", b"continue"), ("execution_id", grip.name), ("tenant_id", "default")],
            stream=grip.stream,
            entry_id=grip.entry_id,
            lower_lost=lower,
            node_id=grip.node,
            timing=timing(token, closed=False),
            active_ms_delta=1,
        )

        def absorb(answer: Answer[Any]) -> None:
            if not isinstance(answer, Value) or answer.value.done_before:
                return
            self.may_write(grip.name, token)
            row = self.row_of(grip.name)
            assert (row.status, step) == ("running", row.step + 1)
            row.active_ms += 1
            if lower:
                row.lost = max(0, row.lost - 1)

        self.send(executions.postpone(self.keys, request), absorb)

    def hand_on(self, grip: Grip, lower: bool) -> None:
        request = HandOn(grip.name, grip.token, grip.stream, grip.entry_id, grip.host, 1, lower)
        intact = False

        def absorb(answer: Answer[Any]) -> None:
            row = self.row_of(grip.name)
            if isinstance(answer, Value) and intact and row.status == "running":
                self.may_write(grip.name, grip.token)
                row.active_ms += 1
                if lower:
                    row.lost = max(0, row.lost - 1)

        def before() -> None:
            nonlocal intact
            intact = self.fence_intact(grip.name, grip.token)

        self.send(executions.hand_on(self.keys, request), absorb, before)

    def retake(self, grip: Grip) -> None:
        nonce = self.nonce()
        request = Retake(
            grip.name, grip.token, grip.holder, nonce, TTL, grip.stream, grip.entry_id, b'{"signal":9}', MAX_LOST, 1
        )

        def absorb(answer: Answer[Any]) -> None:
            if not isinstance(answer, Value):
                return
            execution, begun, row = self.executions[grip.name], answer.value, self.row_of(grip.name)
            assert row.status == "running"
            if int(begun.control["active_ms"]) != row.active_ms:
                self.may_write(grip.name, grip.token)
                row.active_ms += 1
                row.handed_out()
                execution.newest, execution.restored = begun.token, set()
            entry = Entry(grip.stream, grip.entry_id, ())
            self.gripped(grip.host, grip.holder, grip.name, begun, entry)

        self.send(executions.retake(self.keys, request), absorb)

    def count_failure(self, grip: Grip) -> None:
        token, step, node = grip.token, grip.step, grip.node
        call = failures.count_failure(self.keys, CountFailure(grip.name, token, step, node))

        def absorb(answer: Answer[Any]) -> None:
            if not isinstance(answer, Value):
                return
            self.may_write(grip.name, token)
            row, execution = self.row_of(grip.name), self.executions[grip.name]
            mark = f"{token}|{step}"
            if row.failure != mark:
                row.failure = mark
                row.retried |= {node}
                execution.of_node[node] = execution.of_node.get(node, 0) + 1
                execution.of_all += 1
            counted = answer.value
            assert counted.node_failures == max(1, execution.of_node.get(node, 0))
            assert counted.total == max(1, execution.of_all)

        self.send(call, absorb)

    def renew(self, grip: Grip, running: bool) -> None:
        beat = Beat(grip.step, grip.node, timing(grip.token, closed=False)) if running else None
        renewal = Renewal("default", grip.name, grip.lease_value, grip.stream, grip.entry_id, beat)

        def absorb(answer: Answer[Any]) -> None:
            assert isinstance(answer, Value)
            if answer.value == ["ok"]:
                self.may_write(grip.name, grip.token)

        self.send(leases.renew(self.keys, grip.host, [renewal], TTL), absorb)

    # -- what befalls Redis -----------------------------------------------------------------------------

    def lease_ends(self, name: str, expire: bool) -> None:
        lease = self.keys.lease(name)
        if expire and self.raw("PEXPIRE", lease, 1):
            while self.raw("EXISTS", lease):
                pass
        self.raw("DEL", lease)

    def key_is_lost(self, name: str, word: str) -> None:
        execution = self.executions[name]
        if word == "noderetry":
            for node in execution.of_node:
                self.raw("DEL", self.keys.noderetry(name, node))
            execution.of_node = {}
        else:
            self.raw("DEL", self.keys.of_execution(word, name))
        match word:
            case "noderefetch":
                execution.of_all = 0
            case "nofail":
                execution.deterministic = 0
            case "g1wakeups":
                execution.wakeups = 0

    def save_key(self, name: str, word: str) -> None:
        dump = self.raw("DUMP", self.key(name, word))
        row = self.executions[name].row
        if dump is not None:
            self.saved.append(Saved(name, word, dump, row.copy() if row else None))

    def key(self, name: str, word: str) -> str:
        return self.keys.row(name) if word == "row" else self.keys.of_execution(word, name)

    def restore_key(self, pick: int) -> None:
        """One key as it once was. With a row comes what an operator does who brings one back: the indexes are put
        right, and what is not over gets a carrier; the timer of a wait is not brought back."""
        saved = choose(pick, self.saved)
        execution = self.executions[saved.name]
        ttl = TTL if saved.word == "lease" else 0
        self.raw("RESTORE", self.key(saved.name, saved.word), ttl, saved.dump, "REPLACE")
        execution.odd_lease |= saved.word in ("lease", "row")
        if saved.word in ("fence", "fencegen"):
            execution.restored.add(saved.word)
        if saved.word != "row":
            return
        assert saved.row is not None
        execution.row = replace(saved.row.copy(), timed=False)
        execution.era += 1
        for status in STATUSES:
            self.raw("ZREM", self.keys.index(status), saved.name)
        self.raw("ZADD", self.keys.index(saved.row.status), 1, saved.name)
        if saved.row.status in TERMINAL:
            self.raw("ZADD", self.keys.expiry, 1, saved.name)
        else:
            self.raw("ZREM", self.keys.expiry, saved.name)
            fields = [("payload", b"continue"), ("execution_id", saved.name), ("tenant_id", "default")]
            self.runner.do(carriers.enqueue(self.keys, "w", fields))

    # -- what is promised ------------------------------------------------------------------------------

    @invariant()
    def promises_hold(self) -> None:
        photo = self.photo()
        for name, execution in self.executions.items():
            self.row_says_what_was_accepted(name, execution.row, photo)
            self.indexes_are_right(name, execution.row, photo)
            self.counters_are_right(name, execution, photo)
            self.timers_are_right(name, execution, photo)
            row = execution.row
            running = row is not None and row.status == "running"
            assert running or execution.odd_lease or not photo.leased[name], f"{name} is {row} and leased"
            if row is None or row.status in TERMINAL:
                continue
            assert photo.endless[name], f"{name} is {row.status} and would expire"
            if not row.waits or photo.cancels[name]:
                assert name in photo.deliverable, f"{name} is {row} and has no carrier"
        self.each_wait_was_woken_once(photo)

    def row_says_what_was_accepted(self, name: str, row: Row | None, photo: Photo) -> None:
        """Never two contents for one step; never a heartbeat over an advance; every number in the row is right."""
        found = photo.rows[name]
        if row is None:
            assert found == {}
            return
        said = (found["status"], *(int(found.get(word, 0)) for word in ("step", "attempts", "lost", "active_ms")))
        assert said == (row.status, row.step, row.attempts, row.lost, row.active_ms), name
        assert found.get("next_node", "") == row.next_node
        said_of_wait = tuple(found.get(word, "") for word in ("wait", "woken", "wake_data", "wake_id"))
        assert said_of_wait == (row.wait, row.woken, row.wake_data, row.wake_id), name
        results = {key: value for key, value in found.items() if key.startswith("r:")}
        assert results == {f"r:{node}": result.decode() for node, (result, _) in row.nodes.items()}, name
        for node, (_, stamp) in row.nodes.items():
            if node != row.next_node or row.status in ("completed", "suspended"):
                assert found[f"t:{node}"] == stamp.decode(), name

    def indexes_are_right(self, name: str, row: Row | None, photo: Photo) -> None:
        assert photo.indexes[name] == ([row.status] if row else []), name
        assert photo.listed[name] == (row is not None)
        assert photo.expiring[name] == (row is not None and row.status in TERMINAL)

    def counters_are_right(self, name: str, execution: Execution, photo: Photo) -> None:
        for node, count in execution.of_node.items():
            assert photo.counters.get(self.keys.noderetry(name, node), 0) == count, (name, node)
        wanted = (execution.of_all, execution.wakeups, execution.deterministic)
        words = ("noderefetch", "g1wakeups", "nofail")
        assert tuple(photo.counters[self.keys.of_execution(word, name)] for word in words) == wanted, name
        assert execution.wakeups <= 2

    def timers_are_right(self, name: str, execution: Execution, photo: Photo) -> None:
        """A wait with a time has its timer, and no other timer is there but what a backup left."""
        row = execution.row
        wanted = {row.wait} if row is not None and row.timed else set()
        there = photo.timers[name]
        assert wanted <= there if execution.era else wanted == there, f"{name}: timers {there} for {row}"

    def each_wait_was_woken_once(self, photo: Photo) -> None:
        """By one carrier, whoever was first; a wake makes no carrier that names another wait."""
        for entry_id, (name, wait) in photo.wakes.items():
            self.wakes.setdefault(entry_id, (name, self.executions[name].era, wait))
        woken = Counter(self.wakes.values())
        assert not woken or max(woken.values()) == 1, woken

    def photo(self) -> Photo:
        """All of it as of one moment, in one call."""
        counters = [
            self.keys.of_execution(word, name) for name in NAMES for word in ("noderefetch", "g1wakeups", "nofail")
        ]
        for name, execution in self.executions.items():
            counters += [self.keys.noderetry(name, node) for node in execution.of_node]
        sets = [self.keys.index(), self.keys.expiry, *(self.keys.index(status) for status in STATUSES)]
        streams = [self.keys.queue, self.keys.wake]
        names = [*(self.keys.row(name) for name in NAMES), *sets, *streams, self.keys.delayed, *counters]
        flags = [key for name in NAMES for key in (self.keys.cancel(name), self.keys.lease(name))]
        rows, members, found, due, counts, there, times = self.raw(
            "EVAL", PHOTO, len(names) + len(flags), *names, *flags, self.keys.group, len(NAMES), len(sets)
        )
        listed, expiring, *by_status = [[text(member) for member in flat] for flat in members]
        deliverable, timers, wakes = set(), {name: set() for name in NAMES}, {}
        for member in due:
            words = text(member).split(" ")
            if words[0] == "wait":
                timers[words[2]].add(words[3])
            else:
                deliverable.add(words[0])
        for groups, pending, entries in found:
            last = (0, 0)
            for group in groups:
                last = stream_id(dict(zip(map(text, group[::2]), group[1::2], strict=True))["last-delivered-id"])
            claimed = {entry[0] for entry in pending}
            for entry_id, flat in entries:
                fields = dict(zip(flat[::2], flat[1::2], strict=True))
                name = text(fields[b"execution_id"])
                if entry_id in claimed or stream_id(entry_id) > last:
                    deliverable.add(name)
                if b"wait" in fields and b"foreign" not in fields:
                    wakes[entry_id] = (name, text(fields[b"wait"]))
        return Photo(
            rows={name: as_dict(flat) for name, flat in zip(NAMES, rows, strict=True)},
            indexes={n: [s for s, there in zip(STATUSES, by_status, strict=True) if n in there] for n in NAMES},
            listed={name: name in listed for name in NAMES},
            expiring={name: name in expiring for name in NAMES},
            counters={key: int(count or 0) for key, count in zip(counters, counts, strict=True)},
            deliverable=deliverable,
            cancels={name: flag == 1 for name, flag in zip(NAMES, there[::2], strict=True)},
            leased={name: flag == 1 for name, flag in zip(NAMES, there[1::2], strict=True)},
            endless={name: ttl == -1 for name, ttl in zip(NAMES, times, strict=True)},
            timers=timers,
            wakes=wakes,
        )


@dataclass
class Photo:
    """What Redis holds. ``deliverable``: executions with a carrier that is pending, unread, or due some time.
    ``timers``: the waits of each that have one. ``wakes``: the carriers of wakes, execution and wait by entry id."""

    rows: dict[str, dict[str, str]]
    indexes: dict[str, list[str]]
    listed: dict[str, bool]
    expiring: dict[str, bool]
    counters: dict[str, int]
    deliverable: set[str]
    cancels: dict[str, bool]
    leased: dict[str, bool]
    endless: dict[str, bool]
    timers: dict[str, set[str]]
    wakes: dict[bytes, tuple[str, str]]


PHOTO = """
local group, rows, sets = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local answer, at = {{}, {}, {}, {}, {}, {}, {}}, 0
local function next_key() at = at + 1 return KEYS[at] end
for i = 1, rows do answer[1][i] = redis.call('HGETALL', next_key()) end
for i = 1, sets do answer[2][i] = redis.call('ZRANGE', next_key(), 0, -1) end
for i = 1, 2 do
  local stream = next_key()
  local groups = redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}
  local pending = #groups > 0 and redis.call('XPENDING', stream, group, '-', '+', 1000) or {}
  answer[3][i] = {groups, pending, redis.call('XRANGE', stream, '-', '+')}
end
answer[4] = redis.call('ZRANGE', next_key(), 0, -1)
while at < #KEYS - 2 * rows do answer[5][#answer[5] + 1] = redis.call('GET', next_key()) end
for i = 1, rows do
  answer[6][i * 2 - 1] = redis.call('EXISTS', next_key())
  answer[6][i * 2] = redis.call('EXISTS', next_key())
  answer[7][i] = redis.call('PTTL', KEYS[i])
end
return answer
"""


def as_dict(flat: list[bytes]) -> dict[str, str]:
    return {text(key): text(value) for key, value in zip(flat[::2], flat[1::2], strict=True)}


def outcome(answer: Answer[Any]) -> str:
    if isinstance(answer, Refused):
        return answer.reason
    value = answer.value if isinstance(answer, Value) else None
    if isinstance(value, Woken):
        return "woken" if value.woken else value.reason
    if isinstance(value, Resumed):
        return "enqueued" if value.enqueued else value.reason
    return "done before" if getattr(value, "done_before", False) else type(answer).__name__


def woken_as(row: Row, same: bool, wait: str | None, *, cancelled: bool) -> tuple[bool, str]:
    """What a wake must answer for this row; ``same``: this event woke it before."""
    if row.status in TERMINAL:
        return False, "terminal"
    if same and row.woken == "event":
        return True, ""
    if row.status != "suspended":
        return False, "not_waiting"
    if wait not in (None, row.wait):
        return False, "stale_wait"
    if row.woken:
        return False, "already_woken"
    return (False, "cancelled") if cancelled else (True, "")


def kind_of(entry: Entry) -> Any:
    """The model's payloads are their kind; that of a start is a JSON text."""
    payload = text(entry.fields[b"payload"])
    return payload if payload in KINDS else "start"


def timing(token: str, *, closed: bool) -> bytes:
    return json.dumps({"by": token, "ended_at": 1 if closed else None}).encode()


def stream_id(raw: bytes) -> tuple[int, int]:
    first, _, second = raw.partition(b"-")
    return int(first), int(second)


def text(raw: Any) -> str:
    return raw.decode() if isinstance(raw, bytes) else "" if raw is None else str(raw)


def choose(pick: int, options: Any) -> Any:
    """Small picks are drawn most: they mean the newest."""
    return options[-1 - pick % len(options)]


@pytest.fixture(scope="module")
def model_server():
    folder = tempfile.mkdtemp(prefix="plaita-")
    server = Server(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


def run(server: Server, examples: int, steps: int, worthwhile: Sequence[str] = WORTHWHILE) -> None:
    Scripts.server = server
    Scripts.counts = Counter()
    checks = list(HealthCheck)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=checks,
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(Scripts, settings=chosen)
    missing = {what for what in worthwhile if not Scripts.counts[what]}
    assert not missing, f"this run showed nothing of {missing}: {Scripts.counts}"


def test_no_two_owners_and_no_lost_carrier(model_server: Server) -> None:
    run(model_server, examples=80, steps=60)


@pytest.mark.long
def test_no_two_owners_and_no_lost_carrier_for_long(model_server: Server) -> None:
    run(model_server, examples=800, steps=80, worthwhile=WORTHWHILE + RARE)

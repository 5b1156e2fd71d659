"""A model of the scripts under everything that may happen to them: several holders, calls that come twice and late,
leases that run out, counters and single keys that are lost or come back from a backup (issue "No carrier is lost").

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
from hypothesis import HealthCheck, Phase, settings
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
from plaita.store.executions import Begin, Commit, DeadLetter, Finish, HandOn, Postpone, Retake, Start
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
)  # fmt: skip
WORK = frozenset({"commit", "finish", "postpone", "hand_on", "retake", "count_failure", "renew"})
DEEDS = (
    ("commit",) * 9
    + ("take_and_begin", "resend") * 5
    + ("lease_ends", "cancel") * 3
    + ("postpone", "hand_on", "retake", "count_failure", "renew", "settle_verdict", "take", "save_key") * 2
    + ("finish", "begin", "promote", "give_back", "key_is_lost", "restore_key", "restart")
)
SAVED = ("row", "fence", "fencegen", "lease")
LOSABLE = ("fence", "fencegen", "noderetry", "noderefetch", "nofail")
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
    accepted: dict[int, tuple[str, bytes]] = field(default_factory=dict)  # step -> token, result; of this row's history

    def handed_out(self) -> None:
        self.lost = self.lost + 1 if self.lost_node == self.next_node else 1
        self.lost_node = self.next_node

    def copy(self) -> Row:
        return replace(self, accepted=dict(self.accepted))


@dataclass
class Execution:
    row: Row | None = None
    newest: str = ""  # the token given last
    restored: set[str] = field(default_factory=set)  # fence keys brought back since then
    of_node: dict[str, int] = field(default_factory=dict)
    of_all: int = 0

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
        self.counts[f"{sent.call.name} {outcome(answer)}"] += 1
        sent.absorb(answer)
        return answer

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

    def work(self, deed: str, grip: Grip, pick: int, flag: bool) -> None:
        """A holder does something with what it holds, or believes to hold."""
        match deed:
            case "commit":
                self.commit(grip)
            case "finish":
                self.finish(grip, choose(pick, sorted(TERMINAL)), flag)
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
        host, entry = choose(pick, [(host, entry) for host in HOSTS for entry in self.in_hand[host]])
        name = entry.fields[b"execution_id"].decode()
        self.in_hand[host].remove(entry)
        holder = self.holder(host)
        request = Begin(name, holder, self.nonce(), TTL, entry.stream, entry.entry_id, MAX_LOST)

        def absorb(answer: Answer[Any]) -> None:
            if not isinstance(answer, Value):
                return
            execution, begun = self.executions[name], answer.value
            row = self.row_of(name)
            assert row.status not in TERMINAL
            # Not by the token: a begin sent again after its generation was lost is given the same one, rightly.
            if int(begun.control["attempts"]) != row.attempts:
                row.attempts += 1
                row.status = "running"
                row.handed_out()
                execution.newest, execution.restored = begun.token, set()
            self.gripped(host, holder, name, begun, entry)

        answer = self.send(executions.begin(self.keys, request), absorb)
        if isinstance(answer, Refused):
            self.judge(name, entry, answer)

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
        if refused.reason == "leased":
            call = carriers.ack_duplicate(self.keys, "default", name, entry.stream, entry.entry_id)
        elif refused.reason == "terminal":
            call = carriers.ack(self.keys, entry.stream, entry.entry_id)
        else:
            return
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
        call = executions.request_cancel(self.keys, name, "enough", b'{"type":"resume"}')
        self.send(call, lambda answer: None)

    # There is no verb to suspend an execution yet (a later issue): its rule belongs here.

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
                assert step not in row.accepted
                assert (row.status, step) == ("running", row.step + 1)
                row.accepted[step] = (token, result)
                row.step, row.next_node = step, f"n{step + 1}"
                row.lost, row.lost_node = 1, row.next_node
                row.active_ms += step
                if node in row.retried:
                    row.retried -= {node}
                    execution.of_node.pop(node, None)
            if grip.step == step:
                grip.step, grip.node = step + 1, f"n{step + 1}"

        self.send(executions.commit(self.keys, request), absorb)

    def finish(self, grip: Grip, status: str, letter: bool) -> None:
        step, token = grip.step, grip.token
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
        )

        def absorb(answer: Answer[Any]) -> None:
            if not isinstance(answer, Value) or answer.value.done_before:
                return
            row, execution = self.row_of(grip.name), self.executions[grip.name]
            self.may_write(grip.name, token)
            assert (row.status, step) == ("running", row.step + 1)
            row.status = status
            row.active_ms += 1
            if result is not None:
                assert step not in row.accepted
                row.accepted[step] = (token, result)
                row.step = step
            for node in row.retried:
                execution.of_node.pop(node, None)
            row.retried = frozenset()
            execution.of_all = 0

        self.send(executions.finish(self.keys, request), absorb)

    def postpone(self, grip: Grip, lower: bool, delay: int) -> None:
        token, step = grip.token, grip.step
        request = Postpone(
            execution_id=grip.name,
            token=token,
            step=step,
            delay_ms=delay,
            copy_id=f"{grip.name} {token}",
            copy_fields=[("payload", b"{}"), ("execution_id", grip.name), ("tenant_id", "default")],
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

    def promote(self) -> None:
        self.send(delayed.promote(self.keys), lambda answer: None)

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
        if word == "noderefetch":
            execution.of_all = 0

    def save_key(self, name: str, word: str) -> None:
        dump = self.raw("DUMP", self.key(name, word))
        row = self.executions[name].row
        if dump is not None:
            self.saved.append(Saved(name, word, dump, row.copy() if row else None))

    def key(self, name: str, word: str) -> str:
        return self.keys.row(name) if word == "row" else self.keys.of_execution(word, name)

    def restore_key(self, pick: int) -> None:
        """One key as it once was. With a row comes what an operator does who brings one back: the indexes are put
        right, and what is not over gets a carrier."""
        saved = choose(pick, self.saved)
        execution = self.executions[saved.name]
        ttl = TTL if saved.word == "lease" else 0
        self.raw("RESTORE", self.key(saved.name, saved.word), ttl, saved.dump, "REPLACE")
        if saved.word in ("fence", "fencegen"):
            execution.restored.add(saved.word)
        if saved.word != "row":
            return
        assert saved.row is not None
        execution.row = saved.row.copy()
        for status in STATUSES:
            self.raw("ZREM", self.keys.index(status), saved.name)
        self.raw("ZADD", self.keys.index(saved.row.status), 1, saved.name)
        if saved.row.status in TERMINAL:
            self.raw("ZADD", self.keys.expiry, 1, saved.name)
        else:
            self.raw("ZREM", self.keys.expiry, saved.name)
            fields = [("payload", b"{}"), ("execution_id", saved.name), ("tenant_id", "default")]
            self.runner.do(carriers.enqueue(self.keys, "w", fields))

    # -- what is promised ------------------------------------------------------------------------------

    @invariant()
    def promises_hold(self) -> None:
        photo = self.photo()
        for name, execution in self.executions.items():
            self.row_says_what_was_accepted(name, execution.row, photo)
            self.indexes_are_right(name, execution.row, photo)
            self.counters_are_right(name, execution, photo)
            if execution.row is not None and execution.row.status not in TERMINAL:
                assert name in photo.deliverable, f"{name} is {execution.row.status} and has no carrier"

    def row_says_what_was_accepted(self, name: str, row: Row | None, photo: Photo) -> None:
        """Never two contents for one step; never a heartbeat over an advance; every number in the row is right."""
        found = photo.rows[name]
        if row is None:
            assert found == {}
            return
        said = (found["status"], *(int(found.get(word, 0)) for word in ("step", "attempts", "lost", "active_ms")))
        assert said == (row.status, row.step, row.attempts, row.lost, row.active_ms), name
        assert found.get("next_node", "") == row.next_node
        results = {key: value for key, value in found.items() if key.startswith("r:")}
        assert results == {f"r:n{step}": result.decode() for step, (_, result) in row.accepted.items()}, name
        for step, (token, _) in row.accepted.items():
            assert found[f"t:n{step}"] == timing(token, closed=True).decode(), name

    def indexes_are_right(self, name: str, row: Row | None, photo: Photo) -> None:
        assert photo.indexes[name] == ([row.status] if row else []), name
        assert photo.listed[name] == (row is not None)
        assert photo.expiring[name] == (row is not None and row.status in TERMINAL)

    def counters_are_right(self, name: str, execution: Execution, photo: Photo) -> None:
        for node, count in execution.of_node.items():
            assert photo.counters.get(self.keys.noderetry(name, node), 0) == count, (name, node)
        assert photo.counters.get(self.keys.of_execution("noderefetch", name), 0) == execution.of_all

    def photo(self) -> Photo:
        """All of it as of one moment, in one call."""
        counters = [self.keys.of_execution("noderefetch", name) for name in NAMES]
        for name, execution in self.executions.items():
            counters += [self.keys.noderetry(name, node) for node in execution.of_node]
        sets = [self.keys.index(), self.keys.expiry, *(self.keys.index(status) for status in STATUSES)]
        streams = [self.keys.queue, self.keys.wake]
        names = [*(self.keys.row(name) for name in NAMES), *sets, *streams, self.keys.delayed, *counters]
        rows, members, found, due, counts = self.raw(
            "EVAL", PHOTO, len(names), *names, self.keys.group, len(NAMES), len(sets), *NAMES
        )
        listed, expiring, *by_status = [[text(member) for member in flat] for flat in members]
        deliverable = {text(member).split(" ")[0] for member in due}
        for groups, pending, entries in found:
            last = (0, 0)
            for group in groups:
                last = stream_id(dict(zip(map(text, group[::2]), group[1::2], strict=True))["last-delivered-id"])
            claimed = {entry[0] for entry in pending}
            for entry_id, flat in entries:
                if entry_id in claimed or stream_id(entry_id) > last:
                    deliverable.add(text(dict(zip(flat[::2], flat[1::2], strict=True))[b"execution_id"]))
        return Photo(
            rows={name: as_dict(flat) for name, flat in zip(NAMES, rows, strict=True)},
            indexes={n: [s for s, there in zip(STATUSES, by_status, strict=True) if n in there] for n in NAMES},
            listed={name: name in listed for name in NAMES},
            expiring={name: name in expiring for name in NAMES},
            counters={key: int(count or 0) for key, count in zip(counters, counts, strict=True)},
            deliverable=deliverable,
        )


@dataclass
class Photo:
    """What Redis holds. ``deliverable``: executions with a carrier that is pending, unread, or due some time."""

    rows: dict[str, dict[str, str]]
    indexes: dict[str, list[str]]
    listed: dict[str, bool]
    expiring: dict[str, bool]
    counters: dict[str, int]
    deliverable: set[str]


PHOTO = """
local group, rows, sets = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local answer, at = {{}, {}, {}, {}, {}}, 0
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
while at < #KEYS do answer[5][#answer[5] + 1] = redis.call('GET', next_key()) end
return answer
"""


def as_dict(flat: list[bytes]) -> dict[str, str]:
    return {text(key): text(value) for key, value in zip(flat[::2], flat[1::2], strict=True)}


def outcome(answer: Answer[Any]) -> str:
    if isinstance(answer, Refused):
        return answer.reason
    done = isinstance(answer, Value) and getattr(answer.value, "done_before", False)
    return "done before" if done else type(answer).__name__


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


def run(server: Server, examples: int, steps: int, phases: Sequence[Phase] = tuple(Phase)) -> None:
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
        phases=phases,
    )
    run_state_machine_as_test(Scripts, settings=chosen)
    missing = {what for what in WORTHWHILE if not Scripts.counts[what]}
    assert not missing, f"this run showed nothing of {missing}: {Scripts.counts}"


def test_no_two_owners_and_no_lost_carrier(model_server: Server) -> None:
    run(model_server, examples=60, steps=50)


@pytest.mark.long
def test_no_two_owners_and_no_lost_carrier_for_long(model_server: Server) -> None:
    run(model_server, examples=800, steps=80)

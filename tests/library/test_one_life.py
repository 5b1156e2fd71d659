"""Whatever is done to an execution, in whatever order, becomes of it what the tables say: its status, its checkpoint,
its counters, the carriers that are left, and every answer (sections S and D of the ledger).

``one_life_table`` is the reference, ``one_life_stage`` the real thing. Each example is a life of up to three
executions that share flow, queue and dead letters.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, currently_in_test_context, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from one_life_stage import Stage
from one_life_table import NAMES, TERMINAL, Deed, Life, Reference

from plaita import jsontext
from plaita.client import views
from plaita.testing.server import Server

DEEDS = (
    ("on",) * 20
    + ("work",) * 14
    + ("foreign",) * 10
    + ("event",) * 3
    + ("replay",) * 4
    + ("retry", "start", "continue", "timeout", "timer", "delays", "lease_ends") * 2
    + ("cancel", "reader_dies", "rm", "put", "put_over", "flow_rm", "lose_body", "give_body", "near_limit", "unblock")
)
MEANWHILE = ("cancel", "rm", "rm_force", "event", "event", "continue", "start", "put") + ("foreign", "work", "work") * 3
OUTCOMES = ("ok",) * 10 + ("fails",) * 3 + ("dies", "wrong") * 2 + ("restarts", "drains")
FOREIGN = (
    ("foreign",) * 3
    + ("event", "continue", "retry", "timeout") * 2
    + ("cancel", "malformed", "malformed", "other_flow", "too_new")
)
WORTHWHILE = (  # what every run must have seen: a model that never gets anywhere shows nothing
    "start done", "start id_taken", "start no_flow", "start tombstoned", "start dedup x completed",
    "resume event done", "resume event already_woken", "resume event not_waiting", "resume event already_terminal",
    "resume event deleted", "resume timeout done", "resume continue done", "resume continue already_suspended",
    "resume continue held", "resume retry done", "resume retry definition_gone", "cancel done",
    "cancel already_terminal", "cancel deleted", "rm done", "rm running", "put 2", "put_over version_exists",
    "flow_rm 1 removed, 1 going on", "replay replayed", "replay retry", "replay already_replayed",
    "replay already_terminal", "replay execution_deleted", "replay malformed", "replay schema_too_new",
    "start at pending: runs", "start at running: runs", "start at waits: drop", "start at deleted: drop",
    "foreign at none: begins", "foreign at pending: runs", "foreign at held, lives: drop", "continue at running: runs",
    "continue at woken: runs", "continue at waits: drop", "retry at error: wakes", "retry at error: drop",
    "retry at held, lives: drop", "retry at held, died: keep", "event at waits: poison", "event at woken: runs",
    "event at running: runs", "event at pending: poison", "timeout at waits: ends", "timeout at woken: runs",
    "cancel at pending: stops", "cancel at waits, cancel: stops", "malformed at running: copies",
    "malformed at none: letter", "too_new at waits: letter", "other_flow at waits: poison", "reader_dies done",
    "timer done", "delays done", "a fails", "a dies", "a wrong", "b drains", "w dies", "w event ok", "w event fails",
    "w event wrong", "w event dies", "w timeout ok", "v event ok", "ceiling reached", "lost steps exhausted",
    "meanwhile work", "meanwhile cancel", "meanwhile rm", "meanwhile start", "ended completed", "ended error",
    "ended cancelled",
)  # fmt: skip
RARE = (  # what the long run must have seen besides
    "resume retry g1_wakeups_exhausted", "resume retry deterministic_failure_exhausted", "put 3", "replay held",
    "replay definition_gone", "replay id_taken", "replay no_flow", "foreign at none: letter", "foreign at none: drop",
    "foreign at running: runs", "event at waits: ends", "event at held, lives: keep", "cancel at waits: stops",
    "cancel at woken: stops", "continue at waits, cancel: stops", "malformed at waits: copies",
    "malformed at held, lives: keep", "too_new at held, died: keep", "retry at held, earlier: runs", "w timeout dies",
    "w timeout wrong", "stopped with its budget spent",
)  # fmt: skip


class OneLife(RuleBasedStateMachine):
    """One deed at a time, to both; then both are compared."""

    stage: ClassVar[Stage]
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.stage.reset()
        self.reference = Reference(self.seen)
        self.events = self.tags = 0
        self.seeds: Counter[int] = Counter()
        self.told: list[str] = []  # what was done, for who reads how it failed

    @initialize()
    def begin(self) -> None:
        self.act_on(Deed("put", tag=self.tag()))

    @rule(seed=st.integers(0, 2**32 - 1))
    def act(self, seed: int) -> None:
        """Drawn by weight, each time anew where hypothesis repeats itself; leaving others out changes nothing of it."""
        draw = Random(f"{seed} {self.seeds[seed]}")
        self.seeds[seed] += 1
        self.act_on(self.deed(draw.choice(DEEDS), draw))

    def act_on(self, deed: Deed) -> None:
        answer = self.stage.do(deed)
        self.told.append(str(deed))
        if currently_in_test_context():
            note(self.told[-1])
        assert self.reference.do(deed) == answer, deed
        for _, meanwhile in deed.plan:
            assert meanwhile is None or len(set(meanwhile.answers)) == len(meanwhile.answers) / 2, meanwhile
        self.compare()

    # -- which deed -----------------------------------------------------------------------------------------

    def name(self, what: str, draw: Random) -> str:
        """Mostly one that lives; one that never was where something is to start."""
        lives = self.reference.lives.values()
        living = [life.name for life in lives if life.has_row and life.status not in ("completed", "cancelled")]
        unborn = [life.name for life in lives if life.status == "none"]
        if what == "start" and unborn and draw.random() < 0.6:
            return unborn[0]
        if draw.random() < 0.1 or not living:
            return draw.choice(NAMES)
        return draw.choice(living)

    def deed(self, what: str, draw: Random, name: str = "") -> Deed:
        """``name``: of the execution whose node does this meanwhile; '' where nothing runs."""
        meanwhile, name = name != "", name or self.name(what, draw)
        life, flag = self.reference.lives[name], draw.random() < 0.5
        if what == "on":
            what = self.next_for(life, flag)
        if what == "replay" and not self.reference.letters:
            what = "work"
        match what:
            case "work":
                return Deed("work", fresh=draw.random() < 0.3, plan=[] if meanwhile else self.plan(draw, name))
            case "event" | "continue" | "retry" | "timeout":
                return Deed("resume", name, kind=what, event=self.event(flag) if what == "event" else 0)
            case "start":
                return Deed("start", name, dedup="k" if flag else "")
            case "foreign":
                return self.foreign(life, draw)
            case "rm" | "rm_force":
                return Deed("rm", name, force=flag or what == "rm_force")
            case "replay":
                return Deed("replay", letter=self.letter(draw), force=flag)
            case "put" | "put_over":
                return Deed(what, force=flag and what == "put", tag=self.tag())
            case "lose_body" | "give_body":
                return Deed(what, name, tag=life.tag)
            case "reader_dies":
                return Deed(what, fresh=flag)
        return Deed(what, name)

    def letter(self, draw: Random) -> int:
        """Mostly one whose carrier can be run."""
        letters = self.reference.letters
        runnable = [at for at, letter in enumerate(letters) if letter.carrier.kind not in ("malformed", "too_new")]
        return draw.choice(runnable if runnable and draw.random() < 0.8 else range(len(letters)))

    def plan(self, draw: Random, name: str) -> list[tuple[str, Deed | None]]:
        """What the next calls of node code come to, and what is done while they run."""
        made: list[tuple[str, Deed | None]] = []
        for _ in range(draw.randrange(4)):
            word = draw.choice(MEANWHILE) if draw.random() < 0.4 else None
            made.append((draw.choice(OUTCOMES), self.deed(word, draw, name) if word else None))
        return made

    def next_for(self, life: Life, flag: bool) -> str:
        """What brings it on: rare states must be on the way of most examples."""
        if life.held:
            return "lease_ends"
        if any(copy.name == life.name for copy in self.reference.copies):
            return "delays"
        why = self.reference.limited(life)
        if why and flag:
            return "give_body" if why == "definition_gone" else "unblock"
        if life.status == "none" and not self.reference.versions:
            return "put"
        return {"none": "start", "waits": "event", "error": "retry"}.get(life.state, "work")

    def foreign(self, life: Life, draw: Random) -> Deed:
        kind = draw.choice(FOREIGN)
        return Deed(
            "foreign",
            life.name,
            kind=kind,
            wait=draw.choice(("", life.wait, "999")) if kind in ("event", "timeout") else "",
            event=self.event(draw.random() < 0.5) if kind == "event" else 0,
            dedup=draw.choice(("", "k")) if kind == "foreign" else "",
            routed=draw.random() < 0.5,
            unread=kind == "malformed" and draw.random() < 0.5,
        )

    def event(self, again: bool) -> int:
        """A new event, or the last one once more."""
        self.events += not again or self.events == 0
        return self.events

    def tag(self) -> str:
        self.tags += 1
        return f"t{self.tags}"

    # -- what must be so ------------------------------------------------------------------------------------

    def compare(self) -> None:
        reference, stage = self.reference, self.stage
        assert stage.calls == reference.calls
        counted = (stage.stats.get("poison_acked"), stage.stats.get("resumes_normalised"), stage.stats.get("failed"))
        assert counted == (reference.poison, reference.normalised, 0)
        self.carriers_agree()
        for life in reference.lives.values():
            self.life_agrees(life)
            self.has_a_carrier(life)
        due = [("timer", life.name, life.wait) for life in reference.lives.values() if life.has_timer]
        due += [("copy", str(copy.name), "") for copy in reference.copies]
        assert stage.delayed_names() == Counter(due)
        wanted = [(letter.carrier.name, letter.carrier.kind == "malformed") for letter in reference.letters]
        assert [(name, raw) for _, name, raw in stage.letters()] == wanted

    def carriers_agree(self) -> None:
        found = self.stage.entries()
        for key, (looks, _) in found.items():
            self.reference.carrier(key, looks)
        assert not self.reference.new, f"never sent: {self.reference.new}"
        wanted = {key: (carrier.looks, carrier.pending) for key, carrier in self.reference.carriers.items()}
        assert found == wanted

    def life_agrees(self, life: Life) -> None:
        photo = self.stage.photo(life.name)
        row = photo.row
        assert (photo.held, photo.cancel) == (life.held != "", life.cancel), life
        ended = ("expiry",) if life.status in TERMINAL else ()
        assert photo.indexes == ((life.status, "all", *ended) if life.has_row else ()), life
        if not life.has_row:
            assert row is None, life
            assert not any(photo.counters.values()), life
            return
        assert row is not None, life
        control = row.control
        results = {node: jsontext.loads(text) for node, text in row.results.items() if node not in ("start", "end")}
        assert (row.status, results) == (life.status, life.results), life
        assert int(control.get("step", 0)) == life.steps, life
        assert (control.get("next_node") or "start") == life.at, life
        wait = [control.get(field, "") for field in ("wait", "woken")]
        assert wait == [life.wait, life.woken], life
        self.shown_right(life, views.execution(row, "default"))
        if life.woken:
            assert row.wake_data is not None
            assert jsontext.loads(row.wake_data) == life.data, life
        if life.status == "completed":
            assert row.output is not None
            assert jsontext.loads(row.output) == life.results, life
        if life.status in ("running", "suspended"):
            assert int(control["lost"]) == life.lost, life
        if life.status in ("completed", "cancelled"):
            return  # their counters are nobody's any more
        assert [photo.counters[word] for word in ("noderefetch", "nofail", "g1wakeups")] == [
            life.retries, life.deterministic, life.wakeups,
        ], life  # fmt: skip
        if life.status != "error":  # there a retry clears them, when or before it comes
            assert {node: photo.counters[node] for node in ("a", "w", "b", "v")} == {
                node: life.failures[node] for node in ("a", "w", "b", "v")
            }, life

    def shown_right(self, life: Life, shown: dict[str, Any]) -> None:
        """The document of ``show``."""
        assert (shown["status"], shown["attempts"], shown["version"]) == (life.status, life.begins, life.version), life
        assert (shown["waiting"] is not None) == (life.state == "waits"), life
        assert shown["cancel_requested"] == life.cancel, life
        state = "stopped" if life.status == "cancelled" else "requested" if life.cancel else None
        assert (shown["cancel"] or {}).get("state") == state, life
        error = shown["error"]
        assert (error and (error["exception"], error["failed_node"])) == life.error, life

    def has_a_carrier(self, life: Life) -> None:
        """What is neither over nor waiting has one that moves it."""
        if not life.has_row or life.status in TERMINAL or (life.state == "waits" and not life.cancel):
            return
        moving = [carrier for carrier in self.reference.carriers.values() if carrier.name == life.name]
        words = {self.reference.word(carrier, life) for carrier in (*moving, *self.reference.copies)}
        assert words & {"runs", "stops", "copies"}, life


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    folder = tempfile.mkdtemp(prefix="plaita-")
    server = Server(folder)
    made = Stage(server)
    yield made
    made.close()
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


def dies() -> Deed:
    return Deed("work", plan=[("dies", None)])


X = "x"
LIVES = {
    "S6: a wake that comes late ends no later wait": [
        Deed("start", X), Deed("work"), Deed("foreign", X, kind="continue"), Deed("resume", X, kind="event", event=1),
        Deed("work", fresh=True), Deed("work", fresh=True), Deed("resume", X, kind="event", event=2), Deed("work"),
    ],
    "S6: nor does its replay": [
        Deed("start", X), Deed("work"), Deed("near_limit", X), Deed("resume", X, kind="event", event=1),
        Deed("work", plan=[("fails", None)]), Deed("resume", X, kind="retry"), Deed("work"),
        Deed("replay", letter=-1), Deed("resume", X, kind="event", event=2), Deed("work"),
    ],
    "S8: a cancel while a wait begins is told to its node": [
        Deed("start", X), Deed("work", plan=[("ok", None), ("ok", Deed("cancel", X))]),
    ],
    "S8: a cancel needs no budget": [
        Deed("start", X), dies(), Deed("lease_ends", X), dies(), Deed("lease_ends", X), Deed("cancel", X), Deed("work"),
    ],
    "S14: lost steps have an end": [
        Deed("start", X), dies(), Deed("lease_ends", X), dies(), Deed("lease_ends", X), Deed("work"),
    ],
    "Q4, Q9: a carrier that cannot be read meets a spent budget": [
        Deed("start", X), dies(), Deed("lease_ends", X), dies(), Deed("foreign", X, kind="malformed", unread=True),
        Deed("lease_ends", X), Deed("work", fresh=True),
    ],
    "D2: a cancel of what was deleted": [
        Deed("start", X), Deed("rm", X), Deed("cancel", X), Deed("work"), Deed("start", X),
    ],
    "D1, L2: deleted under the hands of its holder": [
        Deed("start", X), Deed("work", plan=[("ok", Deed("rm", X, force=True))]), Deed("work"), Deed("delays"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("life", LIVES)
def test_lives_that_went_wrong_once(stage: Stage, life: str) -> None:
    OneLife.stage = stage
    machine = OneLife()
    machine.begin()
    for deed in deepcopy(LIVES[life]):
        machine.act_on(deed)


def live(stage: Stage, numbers: range, steps: int, worthwhile: Sequence[str]) -> None:
    """One life a number, all different, and the same in each run."""
    OneLife.stage = stage
    OneLife.seen = Counter()
    for number in numbers:
        machine, draw = OneLife(), Random(number)
        machine.begin()
        try:
            for _ in range(steps):
                machine.act(seed=draw.randrange(2**32))
        except AssertionError as error:
            error.add_note(f"life {number}:\n" + "\n".join(machine.told))
            raise
    missing = {what for what in worthwhile if not OneLife.seen[what]}
    assert not missing, f"these lives showed nothing of {missing}: {OneLife.seen}"


def search(stage: Stage, examples: int, steps: int) -> None:
    """Hypothesis goes round what it has met, and makes what it finds short."""
    OneLife.stage = stage
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(OneLife, settings=chosen)


def test_one_execution_lives_as_the_tables_say(stage: Stage) -> None:
    live(stage, range(40), 60, WORTHWHILE)


def test_no_search_finds_another_end(stage: Stage) -> None:
    search(stage, examples=8, steps=50)


@pytest.mark.long
def test_one_execution_lives_as_the_tables_say_for_long(stage: Stage) -> None:
    live(stage, range(1000, 1500), 70, WORTHWHILE + RARE)


@pytest.mark.long
def test_no_search_finds_another_end_for_long(stage: Stage) -> None:
    search(stage, examples=250, steps=60)

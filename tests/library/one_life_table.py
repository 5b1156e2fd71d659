"""What must become of one execution, whatever is done to it: tables written from the ledger, and what their words mean.

``Reference`` has no Redis, no time and no code of plaita's: it is what a reader of the ledger would expect, deed by
deed. ``one_life_stage`` does the same deeds to the real thing; ``test_one_life`` compares.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

NAMES = ("x", "y", "z")
TERMINAL = ("completed", "cancelled", "error")
ORDER = ("start", "a", "w", "b", "v", "end")  # of the nodes; w and v wait, a and b only run
WAITS = ("w", "v")
MAX_DELIVERIES = 2
NODE_RETRY_TOTAL_MAX, G1_MAX_WAKEUPS, DETERMINISTIC_FAILURE_MAX = 100, 2, 12


def table(text: str, **words: str) -> dict[tuple[str, str], str]:
    """(row, column) -> word, of a table drawn with spaces. ``a,b`` heads two rows or columns that are the same.
    ``words``: what is written short in it."""
    (columns, *rows) = [line.split() for line in text.strip().splitlines()]
    return {
        (row, column): words.get(word, word)
        for heads, *found in rows
        for names, word in zip(columns, found, strict=True)
        for row in heads.split(",")
        for column in names.split(",")
    }


# A carrier is taken up, and nobody holds its execution (S1, S3-S7, S13, D2, Q4, Q6, Q9, F8). Where a cancel is asked
# for, whatever runs, and whatever waits, stops instead (S4, S8).
#   runs     goes on from the checkpoint               ends    ends the wait, then runs; a stale one: poison (S6)
#   begins   makes the row, then runs                  wakes   from error, below the limits, then runs (S3, S13)
#   stops    ends cancelled, checkpoint kept (S8)      copies  a dead letter, and a copy that continues (Q4)
#   drop     acked, nothing changed                    letter  a dead letter, nothing changed
#   poison   acked, nothing changed, counted
CARRIERS = table("""
            none    pending running waits   woken   completed cancelled error   deleted
start       poison  runs    runs    drop    runs    drop      drop      drop    drop
foreign     begins  runs    runs    drop    runs    drop      drop      drop    drop
other_flow  letter  poison  poison  poison  poison  poison    poison    poison  drop
continue    poison  runs    runs    drop    runs    drop      drop      drop    drop
retry       poison  runs    runs    drop    runs    drop      drop      wakes   drop
event       poison  poison  runs    ends    runs    drop      drop      drop    drop
timeout     poison  poison  runs    ends    runs    drop      drop      drop    drop
cancel      poison  stops   stops   stops   stops   drop      drop      drop    drop
malformed   letter  copies  copies  copies  copies  letter    letter    letter  letter
too_new     letter  letter  letter  letter  letter  letter    letter    letter  letter
""")

# The same while somebody holds it (L5, Q4, Q6, F8, DECISIONS 1): who lives, who died, or an earlier life of the very
# host that takes the carrier up. keep: not acked, comes again. free: as if nobody held it.
HELD = table("""
            lives   died    earlier
start       drop    keep    free
foreign     drop    keep    free
other_flow  poison  poison  poison
continue    drop    keep    free
retry       drop    keep    free
event       keep    keep    free
timeout     keep    keep    free
cancel      keep    keep    free
malformed   keep    keep    keep
too_new     keep    keep    keep
""")

# What a client is answered (S1-S5, S8, S13, D1, D2, DECISIONS 15, 26, 43). ``done``: what was asked for was done.
CLIENT = table(
    """
                none    pending     running     waits     woken      completed,cancelled error    deleted
start           done    id_taken    id_taken    id_taken  id_taken   id_taken            id_taken tombstoned
event,timeout   no_row  not_waiting not_waiting done      was_woken  ended               ended    deleted
continue        no_row  done        done        suspended done       ended               ended    deleted
retry           no_row  done        done        suspended done       ended               done     deleted
cancel          no_row  done        done        done      done       ended               ended    deleted
rm              no_row  done        running     done      done       done                done     done
rm_force        no_row  done        done        done      done       done                done     done
""",
    ended="already_terminal",
    suspended="already_suspended",
    was_woken="already_woken",
)

# What becomes of a dead letter's replay (D5). ``retry``: its carrier goes as one, since the execution ended in error.
REPLAYS = table(
    """
                none      pending     running   waits     woken     completed,cancelled error     deleted
start           no_row    replayed    replayed  suspended replayed  ended               retry     gone
foreign         replayed  replayed    replayed  suspended replayed  ended               retry     gone
other_flow      no_flow   id_taken    id_taken  id_taken  id_taken  id_taken            id_taken  gone
continue,retry  no_row    replayed    replayed  suspended replayed  ended               retry     gone
event,timeout   no_row    not_waiting replayed  replayed  was_woken ended               retry     gone
cancel          no_row    replayed    replayed  replayed  replayed  ended               ended     gone
malformed       malformed malformed   malformed malformed malformed malformed           malformed malformed
too_new         too_new   too_new     too_new   too_new   too_new   too_new             too_new   too_new
""",
    ended="already_terminal",
    suspended="already_suspended",
    was_woken="already_woken",
    gone="execution_deleted",
    too_new="schema_too_new",
)


@dataclass
class Life:
    """One execution. ``held``: '' or a column of HELD. ``at``: the node to run next. ``error``: the exception that
    ended it, and at which node."""

    name: str
    status: str = "none"
    at: str = "start"
    version: str = ""
    tag: str = ""  # of the definition that it began with (DECISIONS 14)
    dedup: str = ""
    held: str = ""
    cancel: bool = False
    results: dict[str, Any] = field(default_factory=dict)  # by node, as committed
    steps: int = 0
    begins: int = 0
    lost: int = 0  # hand-outs of ``at`` in a row without an end (DECISIONS 7)
    error: tuple[str, str | None] | None = None
    wait: str = ""
    woken: str = ""
    heard: bool = False  # the node's code was handed what ended its wait, as far as anybody knows
    timer_of: str = ""  # the wait whose timer is gone, though that wait is still there
    noted: bool = False  # a failure of it was written down since, which outlives the host
    data: Any = None
    event_id: str = ""
    used: set[str] = field(default_factory=set)  # events that ended a wait: none ends another (DECISIONS 27)
    failures: Counter[str] = field(default_factory=Counter)  # noderetry: of each node in a row (S11)
    retries: int = 0  # noderefetch (S12)
    wakeups: int = 0  # g1wakeups (S13)
    deterministic: int = 0  # nofail (S13)

    @property
    def has_timer(self) -> bool:
        return self.state == "waits" and self.timer_of != self.wait

    @property
    def state(self) -> str:
        """The column of the tables."""
        if self.status == "suspended":
            return "woken" if self.woken else "waits"
        return self.status

    @property
    def has_row(self) -> bool:
        return self.status not in ("none", "deleted")


@dataclass
class Carrier:
    """``foreign``: made by another producer, with its input. ``wait``: the one wait that it is for."""

    kind: str
    name: str | None
    wait: str = ""
    data: Any = None
    event_id: str = ""
    dedup: str = ""
    pending: bool = False

    @property
    def looks(self) -> tuple[str, str | None, str]:
        return self.kind, self.name, self.wait


@dataclass
class Letter:
    carrier: Carrier
    replayed: bool = False


@dataclass
class Deed:
    """Something done to the execution ``name``. ``taken`` is filled in by the stage: the entry that a ``work`` took up,
    and its looks. ``answers``: of the stage, of the reference."""

    what: str
    name: str = ""
    kind: str = ""  # of a carrier
    event: int = 0  # number of the event
    wait: str = ""
    dedup: str = ""
    force: bool = False
    tag: str = ""
    fresh: bool = False  # only what was never delivered
    routed: bool = True  # the entry's fields say whose it is, as plaita's own do
    unread: bool = False  # a payload that is no JSON
    letter: int = 0
    plan: list[tuple[str, Deed | None]] = field(
        default_factory=list
    )  # of the calls of node code: outcome, deed meanwhile
    taken: tuple[str, tuple[str, str | None, str]] | None = None
    answers: list[str] = field(default_factory=list)


def event_data(number: int) -> dict[str, Any]:
    return {"event_id": f"e{number}", "n": number}


class Reference:
    """``seen`` counts what was met, for the test to see that it got anywhere."""

    def __init__(self, seen: Counter[str]) -> None:
        self.seen = seen
        self.lives = {name: Life(name) for name in NAMES}
        self.carriers: dict[str, Carrier] = {}  # by "q 1-0"
        self.new: list[Carrier] = []  # sent, their ids not yet known
        self.copies: list[Carrier] = []  # delayed
        self.letters: list[Letter] = []
        self.versions: dict[str, str] = {}  # tag by version
        self.bodies: set[str] = set()
        self.claims: dict[str, str] = {}
        self.calls: list[tuple[str, str, str, Any]] = []  # of node code: execution, node, method, data
        self.serial = 0
        self.poison = 0
        self.normalised = 0

    def do(self, deed: Deed) -> str:
        """What the deed is answered."""
        found: str = getattr(self, f"do_{deed.what}")(deed)
        if deed.what != "work":
            self.seen[f"{deed.what} {deed.kind} {found}".replace("  ", " ")] += 1
        return found

    # -- what clients do --------------------------------------------------------------------------------

    def do_start(self, deed: Deed) -> str:
        other = self.lives.get(self.claims.get(deed.dedup, ""))
        if other is not None and other.has_row:
            return f"dedup {other.name} {other.status}"
        life = self.lives[deed.name]
        word = CLIENT["start", life.state]
        if word != "done":
            return word
        if not self.versions:
            return "no_flow"
        self.new_row(life, deed.dedup)
        self.new.append(Carrier("start", life.name))
        return word

    def new_row(self, life: Life, dedup: str) -> None:
        life.status = "pending"
        life.version = max(self.versions, key=int)
        life.tag = self.versions[life.version]
        if dedup:
            self.claims[dedup] = life.dedup = life.name
            life.dedup = dedup

    def do_resume(self, deed: Deed) -> str:
        life = self.lives[deed.name]
        word = CLIENT[deed.kind, life.state]
        data = event_data(deed.event) if deed.kind == "event" else None
        if deed.kind == "event" and life.woken and life.status not in TERMINAL and life.event_id == data["event_id"]:
            return "done"  # the same event sent again is one wake
        if deed.kind in ("continue", "retry"):
            return self.ask_to_go_on(life, deed.kind, word)
        if word == "done" and life.cancel:
            return "cancelled"
        if word == "done" and data and data["event_id"] in life.used:
            return "used_event"
        if word == "done":
            self.wake(life, deed.kind, data)
            self.new.append(Carrier(deed.kind, life.name, life.wait))
        return word

    def ask_to_go_on(self, life: Life, kind: str, word: str) -> str:
        if word == "already_suspended" and life.cancel:
            word = "done"
        if word == "done":
            word = self.limited(life) or ("held" if life.held else word)
        if word == "done":
            self.new.append(Carrier(kind, life.name))
        return word

    def limited(self, life: Life) -> str:
        """Why an execution in error is not retried (S13, S3)."""
        if life.status != "error":
            return ""
        if life.wakeups >= G1_MAX_WAKEUPS:
            return "g1_wakeups_exhausted"
        if life.deterministic >= DETERMINISTIC_FAILURE_MAX:
            return "deterministic_failure_exhausted"
        return "" if life.tag in self.bodies else "definition_gone"

    def wake(self, life: Life, kind: str, data: Any) -> None:
        life.woken, life.data, life.heard, life.noted = kind, data, False, False
        life.event_id = data["event_id"] if data else ""
        life.used |= {life.event_id} - {""}

    def do_cancel(self, deed: Deed) -> str:
        life = self.lives[deed.name]
        word = CLIENT["cancel", life.state]
        if word == "done":
            life.cancel = True
            if not life.held:  # else its holder reads the flag
                self.new.append(Carrier("cancel", life.name))
        return word

    def do_rm(self, deed: Deed) -> str:
        life = self.lives[deed.name]
        word = CLIENT["rm_force" if deed.force else "rm", life.state]
        if word == "done" and life.has_row:
            self.claims = {key: name for key, name in self.claims.items() if name != life.name}
            self.lives[life.name] = Life(life.name, "deleted")
        return word

    def do_replay(self, deed: Deed) -> str:
        letter = self.letters[deed.letter]
        carrier = letter.carrier
        if letter.replayed and not deed.force:
            return "already_replayed"
        life = self.lives.get(carrier.name or "", Life("", "none"))
        word = self.replayed_as(carrier, life)
        if word not in ("replayed", "retry"):
            return word
        letter.replayed = True
        self.new.append(replace(carrier, pending=False) if word == "replayed" else Carrier("retry", carrier.name))
        return word

    def replayed_as(self, carrier: Carrier, life: Life) -> str:
        word = REPLAYS[carrier.kind, life.state]
        if life.status == "suspended" and life.cancel and word.startswith("already_"):
            return "replayed"
        if word == "replayed" and life.state == "none" and not self.versions:
            return "no_flow"
        if life.status == "suspended" and carrier.wait not in ("", life.wait) and not life.cancel:
            return "stale_wait"
        if word == "replayed" and life.held and carrier.kind not in ("event", "timeout", "cancel"):
            return "held"
        if word == "retry":
            return self.limited(life) or word
        if word == "replayed" and life.has_row and carrier.kind != "cancel" and life.tag not in self.bodies:
            return "definition_gone"
        return word

    # -- flows ------------------------------------------------------------------------------------------

    def do_put(self, deed: Deed) -> str:
        """A new version, or with ``force`` other content under the latest one."""
        version = max(self.versions, key=int, default="0")
        if not deed.force or version == "0":
            version = str(int(version) + 1)
        self.versions[version] = deed.tag
        self.bodies.add(deed.tag)
        return version

    def do_put_over(self, deed: Deed) -> str:
        return "version_exists" if self.versions else self.do_put(deed)

    def do_flow_rm(self, deed: Deed) -> str:
        if not self.versions:
            return "no_flow"
        going_on = sum(life.has_row and life.status not in TERMINAL for life in self.lives.values())
        removed, self.versions = len(self.versions), {}
        return f"{removed} removed, {going_on} going on"

    def do_lose_body(self, deed: Deed) -> str:
        self.bodies.discard(self.lives[deed.name].tag)
        self.another_host()
        return "done"

    def another_host(self) -> None:
        """What the one before held is held by nobody of the registry any more."""
        for life in self.lives.values():
            life.held = life.held and "died"

    def do_give_body(self, deed: Deed) -> str:
        if tag := self.lives[deed.name].tag:
            self.bodies.add(tag)
        return "done"

    # -- the world ---------------------------------------------------------------------------------------

    def do_foreign(self, deed: Deed) -> str:
        """A carrier by hand. ``taken`` names its entry."""
        named = deed.name if deed.routed or not deed.unread else None
        data = event_data(deed.event) if deed.kind == "event" else None
        event_id = data["event_id"] if data else ""
        self.carriers[deed.taken[0]] = Carrier(deed.kind, named, deed.wait, data, event_id, deed.dedup)
        return "done"

    def do_timer(self, deed: Deed) -> str:
        """The time of a wait is over."""
        life = self.lives[deed.name]
        if life.state == "waits":
            if life.timer_of == life.wait:
                return "done"
            life.timer_of = life.wait
            if not life.cancel:  # which ends the wait: the timer only sends its carrier
                self.wake(life, "timeout", None)
            self.new.append(Carrier("timeout", life.name, life.wait))
        return "done"

    def do_delays(self, deed: Deed) -> str:
        """All delayed copies are due."""
        self.new += self.copies
        self.copies = []
        return "done"

    def do_lease_ends(self, deed: Deed) -> str:
        self.lives[deed.name].held = ""
        return "done"

    def do_reader_dies(self, deed: Deed) -> str:
        """It read a carrier and did nothing with it."""
        if deed.taken:
            self.carrier(*deed.taken).pending = True
        return "done"

    def do_near_limit(self, deed: Deed) -> str:
        """As if all that had happened before."""
        life = self.lives[deed.name]
        if life.status == "error":
            life.deterministic = DETERMINISTIC_FAILURE_MAX
        elif life.status in ("running", "suspended"):
            life.retries = NODE_RETRY_TOTAL_MAX
        return life.status if life.has_row else "none"

    def do_unblock(self, deed: Deed) -> str:
        """An operator deletes the keys that a refused retry names."""
        life = self.lives[deed.name]
        life.wakeups = life.deterministic = 0
        return "done"

    # -- a carrier is taken up -----------------------------------------------------------------------------

    def carrier(self, key: str, looks: tuple[str, str | None, str]) -> Carrier:
        if key not in self.carriers:
            found = next((sent for sent in self.new if sent.looks == looks), None)
            assert found is not None, f"nobody sent {key} {looks}; expected {[sent.looks for sent in self.new]}"
            self.new.remove(found)
            self.carriers[key] = found
        return self.carriers[key]

    def do_work(self, deed: Deed) -> str:
        if deed.taken is None:
            return "nothing"
        key, looks = deed.taken
        carrier = self.carrier(key, looks)
        carrier.pending = True
        life = self.lives.get(carrier.name or "", Life("", "none"))
        word = HELD[carrier.kind, life.held] if life.held else "free"
        state = f"held, {life.held}" if life.held else life.state + (", cancel" if life.cancel else "")
        if word == "free":
            word = self.word(carrier, life)
        self.seen[f"{carrier.kind} at {state}: {word}"] += 1
        if word in ("runs", "ends", "begins", "wakes", "stops"):
            self.begin(life, key, carrier, word, list(deed.plan))
        elif word != "keep":
            del self.carriers[key]
            self.poison += word == "poison"
            if word in ("letter", "copies"):
                self.letters.append(Letter(carrier))
            if word == "copies":
                self.new.append(Carrier("continue", life.name))
            if word.startswith("continue "):  # a start whose dedup key another has (S2)
                self.new.append(Carrier("continue", word.split()[1]))
        return key

    def word(self, carrier: Carrier, life: Life) -> str:
        word = CARRIERS[carrier.kind, life.state]
        if word == "begins":
            other = self.lives.get(self.claims.get(carrier.dedup, ""))
            if other is not None and other.has_row:
                return f"continue {other.name}" if other.status in ("pending", "running") else "drop"
            return word if self.versions else "letter"
        if word == "wakes" and self.limited(life):
            return "drop"
        if word == "copies" and life.lost >= MAX_DELIVERIES:
            return "runs"  # it may not: it ends, and this is the carrier it ends with
        if life.state == "waits" and life.cancel and word in ("drop", "ends"):
            return "stops"
        if word == "ends" and (carrier.wait not in ("", life.wait) or carrier.event_id in life.used):
            return "poison"
        return word

    def begin(self, life: Life, key: str, carrier: Carrier, word: str, plan: list[tuple[str, Deed | None]]) -> None:
        if word == "begins":
            self.new_row(life, carrier.dedup)
        elif word == "ends":
            self.wake(life, carrier.kind, carrier.data)
        elif word == "wakes":
            life.wakeups += 1
            life.lost = 0
            life.error = None
            life.failures.clear()
        elif life.status == "running" and carrier.kind in ("event", "timeout") and not life.woken:
            self.normalised += 1
        life.status = "running"
        life.begins += 1
        life.lost += 1
        if life.tag not in self.bodies:  # F6
            self.poison += 1
            self.end(life, key, "error", ("FlowHashMismatchError", None))
        elif life.cancel or carrier.kind == "cancel":
            if carrier.kind == "malformed":
                self.letters.append(Letter(carrier))
            self.stop(life, key)
        elif life.lost > MAX_DELIVERIES:  # DECISIONS 7
            self.seen["lost steps exhausted"] += 1
            self.end(life, key, "error", ("ExecutorDiedError", life.at), carrier)
        else:
            life.held = "lives"
            while self.step(life, key, carrier, plan):
                pass

    # -- steps ---------------------------------------------------------------------------------------------

    def step(self, life: Life, key: str, carrier: Carrier, plan: list[tuple[str, Deed | None]]) -> bool:
        """Whether there is another one."""
        if life.cancel:
            self.stop(life, key)
            return False
        node, outcome, result = life.at, "ok", None
        if node in WAITS or node in ("a", "b"):
            outcome, result = self.call(life, node, plan)
        if self.lives[life.name] is not life:  # deleted meanwhile: nothing is written, the carrier is not acked
            return False
        self.seen[f"{node}{' ' + life.woken if life.woken else ''} {outcome}"] += 1
        if outcome in ("dies", "restarts"):
            life.held, life.heard = "earlier", life.noted
            if outcome == "dies":
                self.another_host()
            return False
        if outcome not in ("ok", "drains"):
            life.noted = life.heard
            self.failed(life, key, carrier, node, outcome)
            return False
        if node in WAITS and not life.woken and life.cancel:
            life.wait = "began"
            self.stop(life, key)
            return False
        life.steps += 1
        life.deterministic = 0
        life.failures.pop(node, None)
        if result is not None:
            life.results[node] = result
        if node in WAITS and not life.woken:
            life.status, life.wait, life.held, life.lost = "suspended", str(life.steps), "", 0
            del self.carriers[key]
            return False
        life.wait = life.woken = life.event_id = ""
        life.data = None
        if node == "end":
            self.end(life, key, "completed")
            return False
        life.at = ORDER[ORDER.index(node) + 1]
        life.lost = 1
        if outcome == "drains" and not life.cancel:  # handed on, which costs nothing (S14, R6)
            life.held, life.lost = "", 0
            return False
        return True

    def call(self, life: Life, node: str, plan: list[tuple[str, Deed | None]]) -> tuple[str, Any]:
        """Node code runs: how it ends, and its result."""
        method = f"on_{life.woken}" if life.woken else "execute"
        self.serial += 1
        life.heard = bool(life.woken)
        result = {"n": self.serial, "tag": life.tag}
        if life.woken == "event":
            result["data"] = life.data
        self.calls.append((life.name, node, method, life.data if life.woken == "event" else None))
        outcome, meanwhile = plan.pop(0) if plan else ("ok", None)
        if meanwhile is not None:
            self.seen[f"meanwhile {meanwhile.what} {meanwhile.kind}".rstrip()] += 1
            meanwhile.answers.append(self.do(meanwhile))
        return outcome, result

    def failed(self, life: Life, key: str, carrier: Carrier, node: str, outcome: str) -> None:
        life.lost -= 1
        if outcome == "wrong":  # no retry changes it (S9)
            life.deterministic += 1
            exception = "NodeTimeoutError" if life.woken == "timeout" else "NodeExecutionError"
            self.end(life, key, "error", (exception, node))
            return
        life.failures[node] += 1
        life.retries += 1
        if life.failures[node] >= MAX_DELIVERIES or life.retries > NODE_RETRY_TOTAL_MAX:  # S11, S12
            self.seen["ceiling reached"] += life.retries > NODE_RETRY_TOTAL_MAX
            self.end(life, key, "error", ("NodeExecutionError", node), carrier)
            return
        life.held = ""
        self.copies.append(Carrier("continue", life.name))  # S10
        del self.carriers[key]

    def stop(self, life: Life, key: str) -> None:
        """S8; a node in its wait is told, and one that has heard nothing of its end."""
        if life.wait and not life.heard:
            self.calls.append((life.name, life.at, "on_cancel", None))
        self.seen["stopped with its budget spent"] += life.lost > MAX_DELIVERIES
        self.end(life, key, "cancelled", ("FlowCancelledException", life.at))

    def end(
        self,
        life: Life,
        key: str,
        status: str,
        error: tuple[str, str | None] | None = None,
        letter: Carrier | None = None,
    ) -> None:
        life.status, life.held, life.cancel, life.error = status, "", False, error
        if status != "error" or not life.woken:  # what woke it is there for a retry
            life.wait = life.woken = life.event_id = ""
            life.data = None
        if letter is not None:
            self.letters.append(Letter(letter))
        del self.carriers[key]
        self.seen[f"ended {status}"] += 1

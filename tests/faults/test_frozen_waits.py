"""A supervisor frozen past its lease, or past the min-idle of what it took, whose late act is about a wait or a retry:
a suspend, the commit of a resumed node, the end of a cancelled wait, a begin. Nothing is overwritten, and each wait is
woken once (ledger L1, L2, S3, S13; DECISIONS 2, 26)."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from freezing import FLAGS, Freeze, state
from hosts import World, until

from plaita.policy.carrier import resume_payload
from plaita.store import carriers
from plaita.store.keys import Keys
from plaita.testing.proxy import Proxy, Rule
from plaita.testing.server import Server, raw

LATE = {"subscriptionTimeout": 3600, "timeoutHandler": {"strategy": "continue-with", "defaultValue": "late"}}


def woken(freeze: Freeze) -> None:
    freeze.status("suspended")
    assert freeze.world.client.resume(freeze.execution, "event", {"n": 1})["resumed"]


def timed_out(freeze: Freeze) -> None:
    freeze.status("suspended")
    assert freeze.world.client.resume(freeze.execution, "timeout")["resumed"]


def cancelled(freeze: Freeze) -> None:
    freeze.status("suspended")
    freeze.world.client.cancel(freeze.execution)


BROUGHT: dict[str, Callable[[Freeze], None]] = {
    "execute": lambda freeze: None,
    "on_event": woken,
    "on_timeout": timed_out,
    "on_cancel": cancelled,
}
WRITES = {"execute": "suspend", "on_event": "commit", "on_timeout": "commit", "on_cancel": "finish"}
ENDS = {"execute": "suspended", "on_event": "completed", "on_timeout": "completed", "on_cancel": "cancelled"}


def frozen_in(world: World, entry: str, **flags: Any) -> Freeze:
    """In that entry of a node that waits."""
    node = {"type": "t_noted_wait", "id": "w", "slow": entry, **LATE}
    return Freeze(world, node, entry=f"w.{entry}", brought=BROUGHT[entry], **flags)


def runs(freeze: Freeze) -> dict[str, int]:
    """How often each entry ran."""
    return Counter(line.split()[1].partition(".")[2] for line in freeze.file.read_text().splitlines())


def judge(freeze: Freeze, entry: str) -> None:
    """The other one brought it there in attempt 2; what waits is woken once, whoever resumes it."""
    right = {"execute": 1, entry: 2}
    assert freeze.world.get(freeze.execution)["status"] == ENDS[entry]
    if entry == "execute":
        assert freeze.world.stats().delayed == 1, "its timer"
        woken(freeze)
        freeze.status("completed")
        right["on_event"] = 1
    assert runs(freeze) == right
    assert freeze.world.stats().delayed == freeze.world.stats().dlq_length == 0


@pytest.mark.parametrize(
    "entry",
    ["execute", *(pytest.param(entry, marks=pytest.mark.long) for entry in ("on_event", "on_cancel", "on_timeout"))],
)
def test_a_late_write_about_a_wait_is_refused(
    world: World, proxy: Proxy, plaita_server_process: Server, entry: str
) -> None:
    """Suspend, commit and finish were on their way to Redis when everything stood still."""
    freeze = frozen_in(world, entry, redis_url=proxy.url(plaita_server_process.password))
    late = freeze.late_write(proxy, WRITES[entry])
    freeze.lease_over()
    two = freeze.second()
    freeze.open(2)
    freeze.status(ENDS[entry])
    before = freeze.state()
    freeze.arrives(proxy, late)
    assert freeze.state() == before
    judge(freeze, entry)
    assert (freeze.one.stop(), two.stop()) == (0, 0)


@pytest.mark.parametrize(
    "entry",
    ["execute", *(pytest.param(entry, marks=pytest.mark.long) for entry in ("on_event", "on_cancel", "on_timeout"))],
)
def test_a_frozen_supervisor_finds_a_late_answer_about_a_wait_and_changes_nothing(world: World, entry: str) -> None:
    freeze = frozen_in(world, entry)
    freeze.one.signal(signal.SIGSTOP)
    freeze.open(1)
    freeze.passed(1)  # the answer lies in the socket of the frozen supervisor
    freeze.lease_over()
    two = freeze.second()
    freeze.open(2)
    freeze.status(ENDS[entry])
    before = freeze.state()
    freeze.thaw()
    assert freeze.state() == before
    judge(freeze, entry)
    assert (freeze.one.stop(), two.stop()) == (0, 0)


# -- a begin that is under way for so long that another has done all that it asks for ---------------------------------


class LateBegin:
    """Supervisor ``one`` has taken a carrier, and its begin is stuck on the way, when it is frozen. ``two`` then sees
    the carrier to ``status``."""

    def __init__(self, world: World, proxy: Proxy, url: str, *steps: dict[str, Any], brought: str) -> None:
        self.world, self.proxy = world, proxy
        self.file = world.folder / "lines"
        world.chain("f", *({**step, "file": str(self.file)} for step in steps))
        self.one = world.serving(redis_url=url, **FLAGS)
        self.execution = world.start("f")
        self.status(brought)

    def status(self, status: str) -> None:
        until(lambda: self.world.get(self.execution)["status"] == status, f"status {status}")

    def runs(self) -> dict[str, int]:
        return Counter(line.split()[1] for line in self.file.read_text().splitlines())

    def late(self, send: Callable[[], object], done: Callable[[], bool]) -> None:
        """``send`` the carrier; what ``two`` makes of it is ``done`` when the late begin comes, and stays as it is."""
        rule = self.proxy.add(Rule("begin", "freeze"))
        send()
        until(lambda: rule.done, "the begin of the frozen one")
        self.one.signal(signal.SIGSTOP)
        self.world.serving(instance="two", **FLAGS)
        until(done, "the other one's end")
        before = state(self.world, self.execution)
        self.proxy.set_mode("forward")
        until(lambda: rule.answered, "the late begin")
        assert state(self.world, self.execution) == before
        self.one.signal(signal.SIGCONT)
        words = ("begin.refused", "begin.unanswered")  # by whether its own clock or the answer comes first
        until(lambda: any(word in self.one.text() for word in words), "the end of the late begin")
        self.one.wait_serving()
        assert state(self.world, self.execution) == before


@pytest.fixture
def url(proxy: Proxy, plaita_server_process: Server) -> str:
    return proxy.url(plaita_server_process.password)


def test_S13_a_late_begin_of_a_retry_costs_no_second_wake_up(world: World, proxy: Proxy, url: str) -> None:
    """It has failed again by then, and is in error as before: another retry's to wake, not the same one's."""
    step = {"type": "t_noted", "final": True}
    late = LateBegin(
        world, proxy, url, {**step, "id": "b", "fails": 1}, {**step, "id": "c", "fails": 9}, brought="error"
    )
    late.late(lambda: world.client.resume(late.execution, "retry"), lambda: failed_at(world, late.execution, "c"))
    assert late.runs() == {"b": 2, "c": 1}
    assert world.do(raw("GET", world.keys.of_execution("g1wakeups", late.execution))) == b"1"


def failed_at(world: World, execution: str, node: str) -> bool:
    row = world.get(execution)
    return bool(row["status"] == "error" and row["error"]["failed_node"] == node)


@pytest.mark.parametrize("producer", ["a foreign one", pytest.param("wake", marks=pytest.mark.long)])
def test_a_late_begin_of_an_event_does_not_wake_the_next_wait(
    world: World, proxy: Proxy, url: str, producer: str
) -> None:
    wait = {"type": "t_noted_wait", **LATE}
    late = LateBegin(world, proxy, url, {**wait, "id": "v"}, {**wait, "id": "w"}, brought="suspended")

    def send() -> None:
        if producer == "wake":
            assert world.client.resume(late.execution, "event", {"n": 1})["resumed"]
        else:
            world.do(carriers.enqueue(world.keys, "w", foreign(world.keys, late.execution)))

    late.late(send, lambda: bool(world.row(late.execution).control.get("wait_type")) and waits_at(world, late, "w"))
    assert late.runs() == {"v.execute": 1, "v.on_event": 1, "w.execute": 1}
    assert world.client.resume(late.execution, "event", {"n": 2})["resumed"]
    late.status("completed")
    output = world.get(late.execution)["output"]
    assert [output[node]["event_data"] for node in "vw"] == [{"n": 1}, {"n": 2}]
    assert late.runs()["w.on_event"] == 1


def waits_at(world: World, late: LateBegin, node: str) -> bool:
    row = world.row(late.execution)
    return (row.status, row.control["next_node"]) == ("suspended", node)


def foreign(keys: Keys, execution: str) -> list[tuple[str, bytes | str]]:
    """An event of a producer that knows nothing of the row, nor which wait there is."""
    payload = resume_payload(
        execution_id=execution, flow_id="f", resume_type="event", tenant_id=keys.tenant, timestamp="", data={"n": 1}
    )
    return [("payload", payload), ("schema_version", "1")]


@pytest.mark.long
def test_a_late_begin_of_a_cancelled_wait_changes_nothing(world: World, proxy: Proxy, url: str) -> None:
    late = LateBegin(world, proxy, url, {"type": "t_noted_wait", "id": "w", **LATE}, brought="suspended")
    late.late(lambda: world.client.cancel(late.execution), lambda: world.get(late.execution)["status"] == "cancelled")
    assert late.runs() == {"w.execute": 1, "w.on_cancel": 1}

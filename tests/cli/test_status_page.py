"""The screens of ``status`` and ``explain``: they fit, first things come first, and no data writes to the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from plaita.cli.lines import cut, share, wrapped
from plaita.cli.rates import WINDOW_S, Rates
from plaita.cli.status_page import executor_table, explain_page, gone_page, page

NOW = 1_764_504_000_000  # 2025-11-30T12:00:00Z
ID = "0f3e7c52-8a41-4f0e-9b7d-2f1c5d6e7a8{}"


def executor(slot: int, step_s: float | None = None, **changes: Any) -> dict[str, Any]:
    busy = step_s is not None
    return {
        "slot": slot, "pid": 100 + slot, "state": "busy" if busy else "idle",
        "execution_id": ID.format(slot) if busy else None, "flow_id": "order" if busy else None,
        "node_id": "charge_the_card_of_the_customer" if busy else None, "step_s": step_s, "usual_s": None,
        "timeout_s": None, "steps_done": 3, "rss_mib": 31.4, "restarts": 0, "stuck": False, **changes,
    }  # fmt: skip


def status(**changes: Any) -> dict[str, Any]:
    return {
        "instance_id": "host1", "incarnation": "a", "pid": 17, "version": "0.1.0", "status": "running",
        "serving": True, "verdict": "serving", "answer": "serving; 2 of 4 executors at work", "reasons": [],
        "paused": False, "shut": [], "uptime_s": 8000.0, "registry_registered": True,
        "redis": {"connected": True, "server": "valkey 9.1.2", "since": "2025-11-30T09:00:00.000Z", "error": None},
        "queue": {"name": "plaita:flow:queue", "group": "plaita-workers", "stream_length": 9, "pending": 2, "lag": 7,
                  "dlq_length": 1, "delayed": 3, "parked": 4, "oldest_pending_s": 12.3, "other_family": 0,
                  "other_budget": 0},
        "executors": [executor(0, 0.4), executor(1), executor(2, 754.0, usual_s=1.2), executor(3)],
        "stuck": [], "deaths": [], "breakers": [],
        "disk": {"path": "/var/lib/plaita", "free_gib": 78.1, "total_gib": 252.0, "min_free_gib": 5.0,
                 "free_inodes": 16_300_000, "open": True, "since": "2025-11-30T09:00:00.000Z"},
        "drain": {"phase": "none", "since": None, "timeout_s": 30, "left": 0, "receipt": None},
        "counters": {"steps": 10}, "generations": {"config_family": "cf1-a"}, **changes,
    }  # fmt: skip


def texts(lines: list[Any]) -> list[str]:
    return [line.plain for line in lines]


HORRID = "a\x1b[2Jb\nc\u202ed" + "名" * 60

WORST = status(
    instance_id=HORRID, answer=f"NOT taking work: {HORRID} " * 5, verdict="not serving", version=HORRID,
    executors=[executor(n, 10.0 * n, execution_id=HORRID, flow_id=HORRID, node_id=HORRID) for n in range(1, 40)],
    queue={"name": HORRID, "group": HORRID, "other_family": 2}, shut=[HORRID], paused=True,
    redis={"connected": False, "error": HORRID, "since": "2025-11-29T09:00:00.000Z"},
    deaths=[{"at": "2025-11-30T11:59:00.000Z", "slot": 3, "pid": 9, "cause": HORRID, "execution_id": HORRID,
             "node_id": HORRID, "peak_rss_mib": 812}] * 7,
    disk={"path": HORRID, "free_gib": 1.0, "min_free_gib": 5.0, "open": False}, breakers=[{"flow_id": HORRID}],
    services=[{"service": HORRID, "state": "failed", "error": HORRID, "failures": 3},
              {"targets": [{"target": HORRID, "away_since": "2025-11-30T09:00:00.000Z", "left": 1, "error": HORRID}]}],
    drain={"phase": "draining", "since": "2025-11-30T11:59:00.000Z", "left": 3, "timeout_s": 30,
           "receipt": {"finished": 1, "handed_on": 2, "killed": 0}},
    registry_registered=False, reload={"phase": HORRID}, log_lines_waiting=10_000,
)  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, 81, 120, 240])
@pytest.mark.parametrize("answer", [status(), WORST, {}], ids=["ordinary", "worst", "empty"])
def test_every_line_fits_and_no_control_character_is_written(width: int, answer: dict[str, Any]) -> None:
    gate = {"gate": HORRID, "open": False, "value": HORRID, "limit": HORRID, "waiting": None, "advice": HORRID}
    explanation = {**answer, "gates": [gate]} if answer is WORST else {**answer, "gates": []}
    screens = [
        page(answer, width, NOW),
        page(answer, width, NOW, height=24, rates=Rates()),
        gone_page(answer, HORRID, width, NOW, NOW - 5000, NOW - 6000),
        executor_table(answer.get("executors", []), width),
        explain_page(explanation, width, NOW),
    ]
    for lines in screens:
        for line in texts(lines):
            assert cell_len(line) <= width, line
            assert line.isprintable(), repr(line)


@pytest.mark.parametrize("height", [10, 24, 50])
def test_a_screen_has_the_height_and_leaves_out_what_is_least_urgent(height: int) -> None:
    many = status(executors=[executor(n, float(n)) for n in range(60)], deaths=WORST["deaths"])
    lines = texts(page(many, 80, NOW, height=height))
    assert len(lines) <= height
    if height >= 24:
        assert any(line.startswith("  59 ") for line in lines), "the longest first"
        assert any("more at work" in line for line in lines)


def test_the_answer_is_the_second_line_and_coloured_by_the_verdict() -> None:
    for verdict, style in (("serving", "green"), ("degraded", "yellow"), ("not serving", "red")):
        line = page(status(verdict=verdict), 80, NOW)[1]
        assert (line.plain, style in str(line.style)) == ("serving; 2 of 4 executors at work", True)


def test_what_runs_is_told_longest_first_stuck_before_all_with_its_usual_time() -> None:
    stuck = {"slot": 0, "execution_id": ID.format(0), "step_s": 0.4}
    lines = page(status(stuck=[stuck]), 120, NOW)
    found = [line for line in lines if ID[:20] in line.plain]
    assert [line.plain.split()[0] for line in found] == ["0", "2"]
    assert found[0].plain.endswith("STUCK")
    assert "red" in str(found[0].style)
    assert found[1].plain.split()[1:4] == [ID.format(2), "order", "charge_the_card_of_the_customer"]
    assert found[1].plain.split()[4:] == ["13", "min", "1.2", "s", "31"]
    assert "idle: 2 (slot 1, 3)" in texts(lines)


def test_at_80_columns_an_execution_id_can_still_be_copied() -> None:
    lines = texts(page(status(), 80, NOW))
    [line] = [line for line in lines if line.startswith("   2 ")]
    assert ID.format(2) in line
    assert "charge…" in line or "charg…" in line


def test_queue_disk_redis_and_deaths_are_told() -> None:
    death = {"at": "2025-11-30T11:58:00.000Z", "slot": 3, "pid": 9, "cause": "SIGKILL", "execution_id": "e1",
             "node_id": "n", "peak_rss_mib": 812}  # fmt: skip
    older = {**death, "at": "2025-11-30T09:00:00.000Z", "cause": "exit 3"}
    text = "\n".join(texts(page(status(deaths=[older, death]), 120, NOW)))
    for words in (
        "7 not yet read, 2 in work (oldest 12 s), 3 delayed, 4 over a quota, 1 dead letters",
        "connected since 09:00:00 UTC (3 h), valkey 9.1.2",
        "[##############......] 78.1 GiB of 252.0 GiB free, 16.3M inodes, line at 5.0 GiB, /var/lib/plaita",
        "deaths (2 that are kept)",
    ):
        assert words in text
    assert text.index("SIGKILL") < text.index("exit 3"), "the newest first"
    let_go = "\n".join(texts(page(status(queue={**status()["queue"], "claimable": 1}), 120, NOW)))
    assert "7 not yet read, 1 in work, 1 let go (oldest 12 s), 3 delayed" in let_go
    below = "\n".join(texts(page(status(disk={**status()["disk"], "open": False}), 120, NOW)))
    assert "BELOW ITS LINE since 09:00:00 UTC (3 h)" in below


def test_a_drain_is_told_with_what_is_left() -> None:
    drain = {"phase": "draining", "since": "2025-11-30T11:59:48.000Z", "left": 2, "timeout_s": 30.0,
             "receipt": {"finished": 1, "handed_on": 3, "killed": 0, "left": 1}}  # fmt: skip
    text = "\n".join(texts(page(status(drain=drain), 120, NOW)))
    assert (
        "draining since 11:59:48 UTC (12 s), 2 left, killed after 30 s; 1 finished, 3 handed on, 0 killed, 1 given up"
        in text
    )


def test_a_reload_is_told_while_it_goes_on_and_when_it_failed() -> None:
    at = {"since": "2025-11-30T11:59:48.000Z", "generation": 2, "left": 3, "reason": None}
    for reload, words in (
        ({**at, "phase": "replacing"}, "replacing since 11:59:48 UTC (12 s), 3 executors are old still"),
        (
            {**at, "phase": "failed", "left": 0, "reason": "no module x"},
            "failed since 11:59:48 UTC (12 s): no module x",
        ),
    ):
        assert words in "\n".join(texts(page(status(reload=reload), 120, NOW)))
    assert not [line for line in texts(page(status(reload={**at, "phase": "done"}), 120, NOW)) if "reload" in line]


@pytest.mark.parametrize(
    ("waiting", "dropped", "words"),
    [
        (3, 0, None),
        (10_000, 0, "10000 lines are not written yet, 0 were lost"),
        (0, 7, "0 lines are not written yet, 7 were lost"),
    ],
)
def test_a_log_that_takes_no_lines_is_told(waiting: int, dropped: int, words: str | None) -> None:
    lines = texts(page(status(log_lines_waiting=waiting, counters={"log_lines_dropped": dropped}), 100, NOW))
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("log ")] == ([words] if words else [])


def test_explain_puts_what_is_shut_first_with_the_advice() -> None:
    gates = [
        {"gate": "redis", "open": True, "since": "2025-11-30T09:00:00.000Z", "value": "connected", "limit": "",
         "waiting": 0, "advice": ""},
        {"gate": "disk", "open": False, "since": "2025-11-30T11:00:00.000Z", "value": "1 GiB free", "limit": "5 GiB",
         "waiting": 1, "advice": "make room"},
        {"gate": "pause", "open": False, "since": None, "value": "paused", "limit": "", "waiting": None,
         "advice": "resume"},
    ]  # fmt: skip
    stuck = {"slot": 2, "execution_id": "e1", "flow_id": "f", "node_id": "n", "step_s": 754.0, "usual_s": 1.2,
             "timeout_s": None}  # fmt: skip
    answer = {"verdict": "not serving", "answer": "NOT taking work: x", "gates": gates, "stuck": [stuck]}
    lines = texts(explain_page(answer, 120, NOW))
    assert lines == [
        "NOT taking work: x",
        "",
        "SHUT  disk   1 GiB free, limit 5 GiB; since 11:00:00 UTC (60 min); 1 carrier waits",
        "             -> make room",
        "SHUT  pause  paused; how many carriers wait is not known",
        "             -> resume",
        "open  redis  connected; since 09:00:00 UTC (3 h)",
        "STUCK  execution e1, flow f, at node n for 13 min in slot 2; usually 1.2 s; it has no timeout",
    ]


def test_while_nobody_answers_it_says_since_when_and_what_was_seen() -> None:
    lines = texts(gone_page(status(), "socket /x: nobody listens", 80, NOW, NOW - 65_000, NOW - 66_000))
    assert lines[0].startswith("not running")
    assert "socket /x: nobody listens" in lines
    assert "since 2025-11-30 11:58:55 UTC (65 s); it is tried again each second" in lines
    assert any("host1, serving; 2 of 4 executors at work" in line for line in lines)
    assert len(gone_page(None, "nobody", 80, NOW, NOW, None)) == 3


def test_without_a_terminal_there_are_no_colours() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80)
    for line in page(WORST, 80, NOW):
        console.print(line, soft_wrap=True)
    assert "\x1b" not in out.getvalue()


# -- rates and lines ------------------------------------------------------------------------------------


def test_rates_are_of_the_last_minutes_and_begin_anew_with_a_new_life() -> None:
    rates = Rates()
    assert rates.words() == "being counted"
    for second in range(0, 601, 10):
        counters = {"steps": 20 * second, "finished": second, "executor_deaths": second // 400}
        rates.add({"incarnation": "a", "counters": counters}, float(second))
    assert rates.words() == f"last {WINDOW_S:.0f} s: steps 20.0/s, finished 1.0/s, executor deaths 1"
    rates.add({"incarnation": "b", "counters": {"steps": 5}}, 610.0)
    assert rates.words() == "being counted"
    rates.add({"incarnation": "b", "counters": {"steps": 25}}, 620.0)
    assert rates.words() == "last 10 s: steps 2.0/s, finished 0.0/s"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("名名名", 5, "名名…"),
        ("名名名", 4, "名…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_cut(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown


def test_columns_share_what_room_there_is() -> None:
    assert share([5, 30, 30], [5, 6, 6], 100) == [5, 30, 30]
    assert share([5, 30, 10], [5, 6, 6], 35) == [5, 20, 10]
    assert share([5, 30, 30], [5, 6, 6], 3) == [5, 6, 6]


def test_sentences_are_wrapped_at_words_and_long_words_are_cut_up() -> None:
    lines = [line.plain for line in wrapped("one two three " + "x" * 25 + " end", 10, indent="  ")]
    assert lines == ["one two", "  three", "  xxxxxxxx", "  xxxxxxxx", "  xxxxxxxx", "  x end"]
    assert [line.plain for line in wrapped("", 10)] == [""]


def test_E1_services_that_fail_and_servers_that_are_away_have_lines_of_their_own() -> None:
    services = [
        {"service": "events", "state": "running", "failures": 0, "error": None},
        {"service": "schedules", "state": "failed", "since": "2025-11-30T11:59:00.000Z", "failures": 2,
         "error": "boom"},
        {"service": "redis_queue", "state": "running", "targets": [
            {"target": "q:1/0", "waits": 3, "away_since": "2025-11-30T11:00:00.000Z", "error": "refused", "left": 1},
            {"target": "q:2/0", "waits": 4, "away_since": None, "error": None, "left": 0}]},
    ]  # fmt: skip
    lines = " ".join(line.strip() for line in texts(page(status(services=services), 240, NOW)))
    assert "schedules has failed" in lines
    assert "2 times by now, the last 11:59:00 UTC (60 s): boom" in lines
    assert "q:1/0 is away" in lines
    assert "3 wait for its queues, 1 over with messages left there; refused" in lines
    assert "q:2/0" not in lines

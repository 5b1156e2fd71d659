"""Which due time a schedule gets anew that has lost its own (ledger E5; KNOWN-TROUBLE 41)."""

from __future__ import annotations

from typing import Any

import pytest

from plaita import jsontext
from plaita.policy.schedule_again import REMEMBERED_MS, due_again, lacks_due_time, without_due_time
from plaita.policy.schedule_record import Schedule
from plaita.store.executions import DEDUP_TTL_MS

NOW = 1_796_000_000_000  # 2026-11-30T00:53:20Z
HOUR, DAY = 3_600_000, 86_400_000
TOP = NOW // HOUR * HOUR  # 00:00
HOURLY = Schedule(
    schedule_id="s", flow_id="f", cron="0 * * * *", updated_at=NOW - 30 * DAY, queue="q", created_at=NOW - 60 * DAY
)


def entry(due: Any, enqueue: str = "ok", kind: str = "cron") -> bytes:
    return jsontext.dumps({"trigger_kind": kind, "due_at": due, "enqueue": enqueue, "fired_at": NOW})


@pytest.mark.parametrize(
    ("history", "changed", "wanted"),
    [
        ([entry(TOP)], 0, TOP + HOUR),
        ([entry(TOP - 3 * HOUR)], 0, TOP - 2 * HOUR),  # what passed since is missed, as after an outage
        ([entry(TOP - 3 * HOUR, "failed")], 0, TOP - 2 * HOUR),
        ([entry(TOP - 3 * HOUR, "duplicate")], 0, TOP - 2 * HOUR),
        ([entry(TOP - 3 * HOUR), entry(TOP - 4 * HOUR, "skipped")], 0, TOP - 2 * HOUR),
        ([entry(TOP - 4 * HOUR, "skipped"), entry(TOP - 3 * HOUR)], 0, TOP - 2 * HOUR),
        ([entry(None, "ok", "manual"), entry(TOP - 3 * HOUR)], 0, TOP - 2 * HOUR),
        ([entry(TOP, "aside"), entry(TOP - 3 * HOUR)], 0, TOP - 2 * HOUR),  # that one has not run
        ([entry(TOP - 3 * HOUR)], TOP - HOUR - 1, TOP - HOUR),  # put or enabled since
        ([entry(TOP + 900 * DAY)], 0, TOP + HOUR),  # by a clock that was far ahead
        ([entry(TOP - 40 * DAY)], 0, TOP - 6 * DAY + HOUR),  # no further back than a second run would be noticed
        ([], 0, TOP - 6 * DAY + HOUR),  # its history was lost too
        ([], TOP - HOUR, TOP),
        ([b"{", b"[]", entry("soon"), entry(True), entry(TOP - HOUR)], 0, TOP),
    ],
)
def test_E5_a_lost_due_time_is_the_first_that_was_not_seen_to(history: list[bytes], changed: int, wanted: int) -> None:
    schedule = HOURLY.model_copy(update={"updated_at": changed or HOURLY.updated_at})
    assert due_again(schedule, history, NOW, asked=True) == wanted


def test_E5_one_that_was_put_aside_comes_back_only_when_somebody_asks() -> None:
    assert due_again(HOURLY, [entry(TOP, "aside")], NOW, asked=False) is None
    assert due_again(HOURLY, [entry(None, "ok", "manual"), entry(TOP, "aside")], NOW, asked=False) is None
    assert due_again(HOURLY, [entry(TOP), entry(TOP - HOUR, "aside")], NOW, asked=False) == TOP + HOUR


def test_E5_what_never_comes_again_gets_none() -> None:
    assert due_again(HOURLY, [], 10**15, asked=True) is None


@pytest.mark.parametrize(
    ("changes", "asked", "wanted"),
    [
        ({}, False, True),
        ({"enabled": False}, True, False),
        ({"queue": "other"}, True, False),
        ({"queue": ""}, True, True),
        ({"queue": ""}, False, False),  # of an earlier release: it may be another queue's
        ({"cron": "0 0 31 2 *"}, True, False),
        ({"tz": "Moon/Base"}, True, False),
    ],
)
def test_E5_who_lacks_a_due_time(changes: dict[str, Any], asked: bool, wanted: bool) -> None:
    record = HOURLY.model_copy(update=changes).encoded()
    assert (lacks_due_time(record, "s", "q", NOW, asked=asked) is not None) is wanted
    assert lacks_due_time(b"{", "s", "q", NOW, asked=asked) is None


@pytest.mark.parametrize(
    ("changes", "last", "wanted"),
    [
        ({}, b"", "lost"),
        ({}, entry(TOP), "lost"),
        ({"queue": ""}, entry(None, "ok", "manual"), "lost"),
        ({}, entry(TOP, "aside"), "aside"),
        ({"tz": "Moon/Base"}, b"", "aside"),
        ({"enabled": False}, entry(TOP, "aside"), "fine"),
        ({"queue": "other"}, b"", "elsewhere"),
        ({"queue": "other", "enabled": False}, b"", "fine"),
    ],
)
def test_what_it_means_to_have_no_due_time(changes: dict[str, Any], last: bytes, wanted: str) -> None:
    assert without_due_time(HOURLY.model_copy(update=changes).encoded(), "s", last, "q", NOW) == wanted


def test_what_comes_again_is_known_by_its_key() -> None:
    assert REMEMBERED_MS + DAY == DEDUP_TTL_MS, "a day in which somebody fires it"

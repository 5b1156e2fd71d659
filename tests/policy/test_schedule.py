"""Due times and what is fired of them (ledger E5; KNOWN-TROUBLE 40, 41, 43, 92)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from plaita.errors import InputError
from plaita.policy.schedule import (
    ALL_AT_MOST,
    COUNTED_AT_MOST,
    GRACE_MS,
    Calendar,
    calendar,
    cron_key,
    firing,
    manual_key,
)
from plaita.policy.schedule_record import BadSchedule, Schedule, read_schedule

NOW = 1_796_000_000_000  # 2026-11-30T00:53:20Z
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def ms(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type]


def local(due: int, zone: str) -> str:
    return datetime.fromtimestamp(due / 1000, tz=UTC).astimezone(ZoneInfo(zone)).isoformat(timespec="minutes")


def firsts(expression: str, zone: str, begin: int, count: int) -> list[str]:
    dues = calendar(expression, zone, begin).after(begin)
    return [local(due, zone) for due, _ in zip(dues, range(count), strict=False)]


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("0 0 31 2 *", "UTC", ["day-of-month", "'31'"]),
        ("0 0 31 4,6,9,11 *", "UTC", ["day-of-month", "'31'"]),
        ("0 0 */31 2 MON#5", "Europe/Berlin", ["never comes"]),
        ("60 * * * *", "UTC", ["minute", "'60'", "0 to 59"]),
        ("0 24 * * *", "UTC", ["hour", "'24'", "0 to 23"]),
        ("0 0 0 * *", "UTC", ["day-of-month", "'0'"]),
        ("0 0 * 13 *", "UTC", ["month", "'13'", "JAN"]),
        ("* * * * 8", "UTC", ["day-of-week", "'8'"]),
        ("* * * * FRI-MON", "UTC", ["day-of-week", "'FRI-MON'"]),
        ("*/0 * * * *", "UTC", ["minute", "'*/0'"]),
        ("-1 * * * *", "UTC", ["minute", "'-1'"]),
        ("٣ * * * *", "UTC", ["minute"]),
        ("\ud800 * * * *", "UTC", ["minute"]),
        ("9" * 400 + " * * * *", "UTC", ["minute"]),
        ("9" * 5000 + " * * * *", "UTC", ["5008 characters"]),
        ("," * 10_240 + " * * * *", "UTC", ["10248 characters"]),
        ("," * 400 + " * * * *", "UTC", ["minute"]),
        ("* * * * * *", "UTC", ["6 fields", "seconds"]),
        ("* * * *", "UTC", ["4 fields", "five"]),
        ("", "UTC", ["0 fields"]),
        ("@daily", "UTC", ["@daily", "'0 0 * * *'"]),
        ("@reboot", "UTC", ["@reboot", "five"]),
        (None, "UTC", ["None", "text"]),
        (5, "UTC", ["5", "text"]),
        ("* * * * *", "Europe/Berln", ["Europe/Berln", "'Europe/Berlin'"]),
        ("* * * * *", "berlin", ["'Europe/Berlin'"]),
        ("* * * * *", "new york", ["'America/New_York'"]),
        ("* * * * *", "right/Europe/Berlin", ["no time zone", "'Europe/Berlin'"]),  # counts leap seconds
        ("* * * * *", "posix/Europe/Berlin", ["no time zone", "'Europe/Berlin'"]),
        ("* * * * *", "GMT+3", ["'GMT+3'", "an offset", "Etc/GMT-2 for UTC+02:00"]),
        ("* * * * *", "UTC+2", ["an offset"]),
        ("* * * * *", "+02:00", ["an offset"]),
        ("* * * * *", "../../etc/passwd", ["tz", "no time zone"]),
        ("* * * * *", "Europe", ["tz", "no time zone"]),
        ("* * * * *", "localtime", ["tz", "no time zone"]),
        ("* * * * *", "x\0y", ["tz", "no time zone"]),
        ("* * * * *", "\ud800", ["tz", "no time zone"]),
        ("* * * * *", "z" * 10_000, ["tz", "no time zone"]),
        ("* * * * *", "", ["tz"]),
        ("* * * * *", None, ["tz"]),
    ],
)
def test_E5_what_is_no_calendar_is_refused_with_the_field_named(
    expression: object, zone: object, words: list[str]
) -> None:
    with pytest.raises(InputError) as refusal:
        calendar(expression, zone, NOW)
    for word in words:
        assert word in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("expression", "begin", "wanted"),
    [
        ("0 0 29 2 *", (2026, 11, 30), ["2028-02-29", "2032-02-29"]),
        ("0 0 29 2 *", (2096, 3, 1), ["2104-02-29", "2108-02-29"]),  # 2100 is no leap year
        ("0 0 31 * *", (2026, 11, 30), ["2026-12-31", "2027-01-31", "2027-03-31"]),
        ("0 0 30 2 1", (2027, 1, 30), ["2027-02-01", "2027-02-08"]),  # both days given: either
        ("0 0 30 * 1", (2027, 1, 29), ["2027-01-30", "2027-02-01"]),
        ("0 0 */2 * 1", (2027, 2, 1), ["2027-02-15", "2027-03-01"]),  # with a star: both
        ("0 0 L * *", (2027, 2, 1), ["2027-02-28", "2027-03-31"]),
        ("0 0 L 2 *", (2100, 1, 1), ["2100-02-28", "2101-02-28"]),
        ("0 0 LW * *", (2027, 1, 1), ["2027-01-29", "2027-02-26"]),
        ("0 0 * * 5L", (2026, 12, 1), ["2026-12-25", "2027-01-29"]),
        ("0 0 * feb Mon#5", (2026, 1, 1), ["2044-02-29", "2072-02-29", "2112-02-29"]),
        ("0 0 * * 7", (2026, 11, 30), ["2026-12-06", "2026-12-13"]),  # 7 is Sunday, as 0
        ("0 0 1 1 *", (2099, 12, 31), ["2100-01-01", "2101-01-01"]),
    ],
)
def test_E5_leap_days_month_ends_and_the_year_2100(expression: str, begin: tuple[int, ...], wanted: list[str]) -> None:
    assert [found[:10] for found in firsts(expression, "UTC", ms(*begin), len(wanted))] == wanted


@pytest.mark.parametrize(
    ("expression", "zone", "begin", "wanted"),
    [
        # Fixed times: one that is left out runs when the clocks have gone on, one that comes twice the first time.
        ("30 2 * * *", "Europe/Berlin", (2027, 3, 27, 12), ["2027-03-28T03:00+02:00", "2027-03-29T02:30+02:00"]),
        ("0,30 2 * * *", "Europe/Berlin", (2027, 3, 27, 12), ["2027-03-28T03:00+02:00", "2027-03-29T02:00+02:00"]),
        ("30 2 * * *", "Europe/Berlin", (2026, 10, 24, 12), ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        ("30 2 * * *", "Europe/Berlin", (2026, 10, 25, 0, 45), ["2026-10-26T02:30+01:00"]),  # 02:45 the first time
        ("45 2 * * *", "Europe/Berlin", (2026, 10, 25, 1, 15), ["2026-10-26T02:45+01:00"]),  # 02:15 the second time
        ("30 2 * * *", "America/New_York", (2027, 3, 13, 12), ["2027-03-14T03:00-04:00", "2027-03-15T02:30-04:00"]),
        ("30 1 * * *", "America/New_York", (2026, 10, 31, 12), ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", (2026, 10, 3, 0), ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"]),
        # With a star in minute or hour: by real time.
        ("0 * * * *", "Europe/Berlin", (2027, 3, 27, 23, 30), ["2027-03-28T01:00+01:00", "2027-03-28T03:00+02:00"]),
        ("*/30 2 * * *", "Europe/Berlin", (2027, 3, 27, 12), ["2027-03-29T02:00+02:00", "2027-03-29T02:30+02:00"]),
        (
            "*/30 2 * * *",
            "Europe/Berlin",
            (2026, 10, 24, 12),
            ["2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00", "2026-10-25T02:00+01:00", "2026-10-25T02:30+01:00"],
        ),
        # Clocks that change by half an hour: cronsim alone passes over these.
        ("*/20 3 * * *", "Australia/Lord_Howe", (2026, 10, 3, 0), ["2026-10-04T03:00+11:00", "2026-10-04T03:20+11:00"]),
        ("0 */2 * * *", "Australia/Lord_Howe", (2026, 4, 4, 14), ["2026-04-05T02:00+10:30", "2026-04-05T04:00+10:30"]),
        ("*/60 3 * * 0", "Australia/Lord_Howe", (2026, 4, 4, 0), ["2026-04-05T03:00+10:30", "2026-04-12T03:00+10:30"]),
    ],
)
def test_E5_the_days_on_which_the_clocks_change(
    expression: str, zone: str, begin: tuple[int, ...], wanted: list[str]
) -> None:
    assert firsts(expression, zone, ms(*begin), len(wanted)) == wanted


CHANGES = [
    ("Europe/Berlin", (2026, 3, 28)),
    ("Europe/Berlin", (2026, 10, 24)),
    ("Europe/Berlin", (2027, 3, 27)),
    ("Europe/Berlin", (2027, 10, 30)),
    ("America/New_York", (2027, 3, 13)),
    ("America/New_York", (2026, 10, 31)),
    ("Australia/Lord_Howe", (2026, 4, 4)),
    ("Australia/Lord_Howe", (2026, 10, 3)),
    ("Africa/Cairo", (2026, 4, 23)),
    ("America/Nuuk", (2027, 3, 27)),  # the last hour of a day is left out
    ("America/Havana", (2027, 3, 13)),  # the first one is
    ("Antarctica/Troll", (2027, 3, 27)),  # two hours are
    ("Antarctica/Troll", (2026, 10, 24)),
    ("UTC", (2026, 2, 27)),
]
MINUTES = st.sampled_from(["*", "*/7", "*/20", "0", "15", "0,30", "59", "10-12"])
HOURS = st.sampled_from(["*", "*/2", "0", "1", "2", "3", "1-3", "23"])
DAYS = st.sampled_from(["*", "*/2", "L"])
WEEKDAYS = st.sampled_from(["*", "0", "6"])


@settings(max_examples=60, deadline=None)
@given(MINUTES, HOURS, DAYS, WEEKDAYS, st.sampled_from(CHANGES), st.integers(0, 3 * 24 * 60 - 1))
def test_E5_due_times_are_the_same_wherever_one_begins_and_the_librarys(
    minute: str, hour: str, day: str, weekday: str, change: tuple[str, tuple[int, ...]], at: int
) -> None:
    """The due times rise, those after any moment are the rest of the whole, and the latest are the end of it. Where the
    clocks change by whole hours they are those of one walk of the library."""
    zone, begin = change
    plan = Calendar(f"{minute} {hour} {day} * {weekday}", zone)
    first, last = ms(*begin), ms(*begin) + 3 * DAY
    whole = list(takewhile(lambda due: due <= last, plan.after(first)))
    assert whole == sorted(set(whole))
    moment = first + at * MINUTE
    rest = [due for due in whole if due > moment]
    assert list(takewhile(lambda due: due <= last, plan.after(moment))) == rest
    passed = [due for due in whole if due <= moment]
    assert plan.latest(moment, 20, first + 1) == passed[-20:]
    if zone != "Australia/Lord_Howe":
        start = datetime.fromtimestamp(first / 1000, tz=UTC)
        walk = CronSim(plan.expression, start if zone == "UTC" else start.astimezone(ZoneInfo(zone)))
        theirs = {int(one.timestamp()) * 1000 for one in takewhile(lambda one: one.timestamp() * 1000 <= last, walk)}
        assert whole == sorted(theirs)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["*", "*/7", "*/20"]), HOURS, st.sampled_from(CHANGES))
def test_E5_minutes_with_a_star_are_all_the_minutes_that_the_clocks_show(
    minute: str, hour: str, change: tuple[str, tuple[int, ...]]
) -> None:
    zone, begin = change
    if zone == "Africa/Cairo" and hour in ("0", "*/2"):
        return  # midnight is left out there, and the library runs what was due at it at one o'clock
    plan = calendar(f"{minute} {hour} * * *", zone, NOW)
    fields = CronSim(plan.expression, datetime(2026, 1, 1))
    first = ms(*begin)
    moments = [first + place * MINUTE for place in range(1, 2 * 24 * 60)]
    clocks = [(moment, datetime.fromtimestamp(moment / 1000, tz=UTC).astimezone(ZoneInfo(zone))) for moment in moments]
    wanted = [moment for moment, shown in clocks if shown.minute in fields.minutes and shown.hour in fields.hours]
    assert list(takewhile(lambda due: due <= moments[-1], plan.after(first))) == wanted


def test_43_far_away_clocks_end_the_calendar_without_an_error() -> None:
    plan = calendar("0 0 1 1 *", "Europe/Berlin", NOW)
    for moment in (0, ms(9999, 12, 31), 253_402_300_799_999, 10**15, 2**53):
        assert all(due > moment for due, _ in zip(plan.after(moment), range(2), strict=False))
    assert plan.next_after(10**15) is None


# -- what is fired ------------------------------------------------------------------------------------

EACH_MINUTE = Calendar("* * * * *", "UTC")
TOP = ms(2026, 11, 30, 12)


@pytest.mark.parametrize(
    ("misfire", "late", "fired", "skipped"),
    [
        ("once", 0, [0], 0),
        ("once", 59, [0], 0),
        ("once", 3 * 3600, [180], 180),
        ("skip", 0, [0], 0),
        ("skip", 59, [0], 0),
        ("skip", 3 * 3600 + 30, [180], 180),
        ("skip", 3 * 3600, [180], 180),
        ("all", 0, [0], 0),
        ("all", 125, [0, 1, 2], 0),
        ("all", 3 * 3600, list(range(81, 181)), 81),
    ],
)
def test_41_after_an_outage_each_due_time_runs_or_is_counted(
    misfire: str, late: int, fired: list[int], skipped: int
) -> None:
    found = firing(EACH_MINUTE, TOP, TOP + late * 1000, misfire)  # type: ignore[arg-type]
    assert [(due - TOP) // MINUTE for due in found.fire] == fired
    assert (found.skipped, found.counted) == (skipped, True)
    assert len(found.fire) + found.skipped == late // 60 + 1
    if skipped:
        assert (found.skipped_from, found.skipped_to) == (TOP, TOP + (fired[0] - 1) * MINUTE)
    assert found.next_due == TOP + (late // 60 + 1) * MINUTE


def test_41_skip_runs_nothing_that_was_missed() -> None:
    daily = Calendar("0 12 * * *", "Europe/Berlin")
    due = daily.next_after(TOP)
    assert due is not None
    late = firing(daily, due, due + GRACE_MS, "skip")
    assert (late.fire, late.skipped, late.next_due) == ((), 1, due + DAY)
    assert firing(daily, due, due + GRACE_MS - 1, "skip").fire == (due,)
    assert firing(daily, due, due + 10 * HOUR, "once").fire == (due,)


@pytest.mark.parametrize("misfire", ["once", "skip", "all"])
def test_41_years_of_minutes_are_not_gone_through_one_by_one(misfire: str) -> None:
    now = TOP + 3650 * DAY + 30_000
    found = firing(EACH_MINUTE, TOP, now, misfire)  # type: ignore[arg-type]
    wanted = {"once": 1, "skip": 1, "all": ALL_AT_MOST}[misfire]
    assert found.fire == tuple(now - 30_000 - place * MINUTE for place in reversed(range(wanted)))
    assert (found.skipped, found.counted, found.skipped_from) == (COUNTED_AT_MOST, False, TOP)
    assert found.skipped_to == found.fire[0] - MINUTE
    assert found.next_due == now + 30_000


@pytest.mark.parametrize("misfire", ["once", "all"])
def test_41_a_long_outage_over_a_midnight_that_the_clocks_leave_out(misfire: str) -> None:
    """Greenland's clocks go from 23:00 to 0:00 on a Saturday; the library walks back from there without an end."""
    zone = ZoneInfo("America/Nuuk")
    due = int(datetime(2026, 1, 3, tzinfo=zone).timestamp() * 1000)
    now = int(datetime(2027, 3, 28, 9, tzinfo=zone).timestamp() * 1000)
    found = firing(Calendar("*/5 * * * 6", "America/Nuuk"), due, now, misfire)  # type: ignore[arg-type]
    assert (len(found.fire), found.counted) == ({"once": 1, "all": ALL_AT_MOST}[misfire], False)
    assert local(found.fire[-1], "America/Nuuk") == "2027-03-27T22:55-02:00"
    assert found.skipped_to == found.fire[0] - 5 * MINUTE
    assert local(found.next_due or 0, "America/Nuuk") == "2027-04-03T00:00-01:00"


def test_43_a_clock_that_went_back_fires_nothing_before_its_time_and_nothing_twice() -> None:
    fired: list[int] = []
    due = TOP
    for now in (TOP, TOP + MINUTE, TOP - HOUR, TOP - HOUR + MINUTE, TOP + MINUTE, TOP + 2 * MINUTE):
        found = firing(EACH_MINUTE, due, now, "all")
        fired += found.fire
        assert found.next_due is not None
        due = found.next_due
    assert fired == [TOP, TOP + MINUTE, TOP + 2 * MINUTE]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["* * * * *", "*/20 1-3 * * *", "30 2 * * *", "0 0 * * 0", "0 0 29 2 *"]),
    st.sampled_from(CHANGES),
    st.lists(st.integers(0, 9 * 3600), min_size=1, max_size=12),
)
def test_E5_looking_at_any_moments_runs_each_due_time_once(
    expression: str, change: tuple[str, tuple[int, ...]], steps: list[int]
) -> None:
    """With ``all`` (under its cap): whatever the moments at which somebody looks, each due time is fired once."""
    zone, begin = change
    plan = calendar(expression, zone, ms(*begin))
    due = first = plan.next_after(ms(*begin))
    assert due is not None
    assert first is not None
    now, fired, skipped = ms(*begin), [], 0
    for step in steps:
        now += step * 1000
        found = firing(plan, due, now, "all")
        fired += found.fire
        skipped += found.skipped
        assert found.next_due is not None
        due = found.next_due
    assert len(set(fired)) == len(fired)
    passed = list(takewhile(lambda one: one <= now, plan.after(first - 1)))
    assert set(fired) <= set(passed)
    assert len(fired) + skipped == len(passed)
    assert due == next(plan.after(max(now, first - 1)))


# -- keys and records ---------------------------------------------------------------------------------


def test_E5_keys() -> None:
    assert cron_key("s", 1_796_000_040_000, NOW) == "sched:s:due:1796000040000"
    assert cron_key("s", None, 1_796_000_040_999) == "sched:s:fired:1796000040"
    assert manual_key("s", 1_796_000_040_123_456_789, 7) == "sched:s:manual:1796000040123456789-7"


RECORD = Schedule(schedule_id="s", flow_id="f", cron="*/5 * * * *", tz="Europe/Berlin", params={"n": 2**62, "e": []})


def test_a_record_comes_back_as_it_was() -> None:
    assert read_schedule(RECORD.encoded(), "s", NOW) == RECORD
    more = RECORD.encoded()[:-1] + b',"of_a_later_release":1}'
    assert read_schedule(more, "s", NOW) == RECORD


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[]", "whole"),
        (b"\xff", "JSON"),
        (b'{"schedule_id":"s"}', "flow_id"),
        (RECORD.encoded().replace(b"*/5 ", b"*/0 "), "minute"),
        (RECORD.encoded().replace(b"Berlin", b"Berlim"), "tz"),
        (RECORD.encoded().replace(b'"once"', b'"often"'), "misfire"),
        (RECORD.encoded().replace(b'"enabled":true', b'"enabled":"yes"'), "enabled"),
        (RECORD.encoded().replace(b'"s"', b'"t"'), "schedule_id"),
        (RECORD.encoded().replace(b'"created_at":0', b'"created_at":' + b"9" * 22), "created_at"),
        (RECORD.encoded().replace(b'"updated_at":0', b'"updated_at":-1'), "updated_at"),
    ],
)
def test_38_a_record_that_cannot_be_read_says_why(raw: bytes, word: str) -> None:
    with pytest.raises(BadSchedule, match=word):
        read_schedule(raw, "s", NOW)


def test_the_due_time_of_a_day_is_by_the_zone() -> None:
    assert firsts("0 6 * * *", "Asia/Kolkata", TOP, 1) == ["2026-12-01T06:00+05:30"]
    assert timedelta(milliseconds=calendar("0 6 * * *", "Asia/Kolkata", TOP).next_after(TOP) - TOP) == timedelta(  # type: ignore[operator]
        hours=12, minutes=30
    )

"""Where a carrier that names a host may run (ledger G4, DECISIONS 12): the whole table, and what copies say."""

from __future__ import annotations

from itertools import product

import pytest

from plaita.policy import affinity
from plaita.policy.affinity import Handover, Target, Verdict, judge, judge_path

NOW = 1_700_000_000_000
PATIENCE = 60_000
STATUSES = ("starting", "running", "draining", "stopping", "stopped", "", "no such word", None)
SINCE = (None, NOW, NOW - PATIENCE + 1, NOW - PATIENCE, NOW - 10 * PATIENCE, NOW + PATIENCE)


def expected(ours: bool, readable: bool, status: str | None, since: int | None, now: int | None) -> Verdict:
    if ours:
        return Verdict.RUN_HERE
    if not readable or now is None:
        return Verdict.KEEP
    if status != "running":
        return Verdict.BROADCAST
    spent = since in (NOW - PATIENCE, NOW - 10 * PATIENCE)
    return Verdict.EXHAUSTED if spent else Verdict.HAND_OVER


@pytest.mark.parametrize(
    ("ours", "readable", "status", "since", "now"),
    list(product((True, False), (True, False), STATUSES, SINCE, (NOW, None))),
)
def test_G4_the_whole_table(ours: bool, readable: bool, status: str | None, since: int | None, now: int | None) -> None:
    ruling = judge(
        ours=ours,
        target=Target(readable, status),
        instance_id="me",
        handover=Handover(3, since),
        now_ms=now,
        patience_ms=PATIENCE,
    )
    assert ruling.verdict is expected(ours, readable, status, since, now)
    assert (ruling.delay_ms > 0) == (ruling.verdict is Verdict.HAND_OVER)


def test_DECISIONS_12_each_handover_waits_longer_until_the_time_is_over() -> None:
    handover, now, delays = Handover(), NOW, []
    while True:
        ruling = judge(
            ours=False,
            target=Target(True, "running"),
            instance_id="me",
            handover=handover,
            now_ms=now,
            patience_ms=PATIENCE,
        )
        if ruling.verdict is not Verdict.HAND_OVER:
            break
        delays.append(ruling.delay_ms)
        assert ruling.handover == Handover(len(delays), NOW, len(delays) - 1, ("me",))
        handover, now = ruling.handover, now + ruling.delay_ms
    assert ruling.verdict is Verdict.EXHAUSTED
    assert delays[:7] == [250, 500, 1000, 2000, 4000, 5000, 5000]
    assert set(delays[5:]) == {5000}
    assert sum(delays[:-1]) < PATIENCE <= sum(delays)


def test_DECISIONS_12_many_hosts_are_met_as_soon_as_few() -> None:
    """Each of 40 hosts meets it once: the waits do not grow from host to host, only from one round to the next."""
    handover, delays = Handover(), []
    for number in [*range(40), *range(5)]:
        ruling = judge_path(missing=True, instance_id=f"h{number}", handover=handover, now_ms=NOW, patience_ms=PATIENCE)
        delays.append(ruling.delay_ms)
        handover = ruling.handover
    assert delays[: affinity.MET_AT_MOST] == [250] * affinity.MET_AT_MOST
    assert set(delays[affinity.MET_AT_MOST :]) == {500}, "no copy names more than so many"
    assert handover.met == tuple(f"h{number}" for number in [*range(32, 40), *range(5)])
    assert handover.count == 45


def test_DECISIONS_12_a_clock_that_went_back_does_not_make_it_endless() -> None:
    ruling = judge(
        ours=False,
        target=Target(True, "running"),
        instance_id="me",
        handover=Handover(1, NOW + 1),
        now_ms=NOW,
        patience_ms=PATIENCE,
    )
    assert ruling.handover.since_ms == NOW


def test_G4_no_count_makes_the_wait_longer_than_5_s() -> None:
    ruling = judge(
        ours=False,
        target=Target(True, "running"),
        instance_id="me",
        handover=Handover(10**9, NOW, 10**9),
        now_ms=NOW,
        patience_ms=PATIENCE,
    )
    assert ruling.delay_ms == 5000


@pytest.mark.parametrize(
    ("target", "instance", "ours"), [(None, "a", True), ("", "a", True), ("a", "a", True), ("b", "a", False)]
)
def test_G4_whose_it_is(target: str | None, instance: str, ours: bool) -> None:
    assert affinity.is_for(target, instance) is ours


def test_G4_a_copy_says_how_often_and_since_when() -> None:
    said = Handover(4, NOW, 1, ("é", "a:b"))
    written = {name.encode(): value.encode() for name, value in affinity.fields_of(said).items()}
    assert affinity.handover_of(written) == said


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"handovers": b"3"},
        {b"handovers": b"x", b"handover_since": b"1"},
        {b"handovers": b"1", b"handover_since": b""},
        {b"handovers": b"9" * 5000, b"handover_since": b"1"},
    ],
)
def test_G4_what_cannot_be_read_is_a_first_handover(fields: dict[bytes, bytes]) -> None:
    assert affinity.handover_of(fields) == Handover()


def test_G4_a_count_below_nothing_is_nothing() -> None:
    assert affinity.handover_of({b"handovers": b"-5", b"handover_since": b"7"}) == Handover(0, 7)


@pytest.mark.parametrize(("missing", "since", "now"), list(product((True, False), SINCE, (NOW, None))))
def test_G4_the_whole_table_of_paths(missing: bool, since: int | None, now: int | None) -> None:
    ruling = judge_path(
        missing=missing, instance_id="me", handover=Handover(3, since), now_ms=now, patience_ms=PATIENCE
    )
    like_a_target = judge(
        ours=False,
        target=Target(True, "running"),
        instance_id="me",
        handover=Handover(3, since),
        now_ms=now,
        patience_ms=PATIENCE,
    )
    assert ruling == (like_a_target if missing else affinity.Ruling(Verdict.RUN_HERE))

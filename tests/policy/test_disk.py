"""The line of the disk guard: bytes, inodes, and the margin between shutting and opening (ledger G5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaita.policy.disk import GIB, DiskFacts, DiskLine, judge

LINE = DiskLine(10.0, 5.0)
B, INODES = ("bytes",), ("inodes",)


def facts(gib: float, percent: float = 100.0, total: int = 100_000) -> DiskFacts:
    return DiskFacts(int(gib * GIB), int(total * percent / 100), total)


@pytest.mark.parametrize(
    ("found", "line", "was", "short"),
    [
        (facts(11), LINE, (), ()),
        (facts(10), LINE, (), ()),  # at the line is not below it
        (facts(9.99), LINE, (), B),
        (facts(10.2), LINE, B, B),  # back above the line, not by the margin yet
        (facts(10.25), LINE, B, ()),
        (facts(1.05), DiskLine(1.0), B, B),  # a tenth of a small line
        (facts(1.11), DiskLine(1.0), B, ()),
        (facts(11, 5), LINE, (), ()),
        (facts(11, 4.9), LINE, (), INODES),
        (facts(11, 5.4), LINE, INODES, INODES),
        (facts(11, 5.5), LINE, INODES, ()),
        (facts(10.1, 5.1), LINE, INODES, INODES),  # the margin is only of what was short
        (facts(1, 1), LINE, (), B + INODES),
        (facts(11, 1), LINE, B + INODES, INODES),
        (facts(11, 0, total=0), LINE, (), ()),  # a file system that counts no inodes
        (facts(11, 0, total=0), LINE, INODES, ()),
        (facts(11, 0), DiskLine(10.0, 0.0), (), ()),
        (facts(11, 99.9), DiskLine(10.0, 100.0), (), INODES),
        (facts(11, 100), DiskLine(10.0, 100.0), INODES, ()),  # the margin is never out of reach
        (facts(0, 0), DiskLine(0.0, 50.0), (), ()),  # off
        (None, LINE, (), ()),  # a look that failed says nothing
        (None, LINE, B, ()),
    ],
)
def test_G5_the_line(found: DiskFacts | None, line: DiskLine, was: tuple[str, ...], short: tuple[str, ...]) -> None:
    ruling = judge(found, line, short_of=was)
    assert (ruling.short_of, ruling.open) == (short, not short)


@given(st.floats(0.001, 100_000), st.lists(st.floats(-1, 1), max_size=30))
def test_G5_a_disk_that_hovers_at_the_line_shuts_once(line_gib: float, steps: list[float]) -> None:
    """However it moves within the margin around the line, the gate turns at most once."""
    line = DiskLine(line_gib)
    margin = line.opens_at_gib - line_gib
    short: tuple[str, ...] = ()
    turns = 0
    for step in steps:
        ruling = judge(facts(line_gib + step * margin * 0.99), line, short_of=short)
        turns += bool(short) != bool(ruling.short_of)
        short = ruling.short_of
    assert turns <= 1

"""docs/state-machines.md is printed from the tables; it must be the print of today's."""

from __future__ import annotations

from pathlib import Path

from plaita.policy.print_tables import render


def test_the_page_is_printed_from_the_tables() -> None:
    page = Path(__file__).parents[2] / "docs" / "state-machines.md"
    assert page.read_text("utf-8") == render(), "run `make docs`"

"""docs/expressions.md is true: every example of its tables is evaluated with the data it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from plaita.errors import ExpressionError
from plaita.flow import functions
from plaita.flow.expr_scope import LOOP_ROOTS, ROOTS
from plaita.flow.expressions import Scope, evaluate

TEXT = (Path(__file__).parents[2] / "docs" / "expressions.md").read_text("utf-8")
NOW_MS = 1_796_026_755_123
ROW = re.compile(r"^\| `(?P<written>[^`]+)` \| (?:`(?P<gives>[^`]+)`|(?P<error>error)) \|")


def rows() -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    tested = False
    for line in TEXT.splitlines():
        if not line.startswith("|"):
            tested = False
        elif line.startswith("| Written | Gives |"):
            tested = True
        elif tested and not line.startswith("|---"):
            match = ROW.match(line)
            assert match is not None, f"not an example: {line}"
            found.append((match["written"], match["gives"]))
    return found


def scope() -> Scope:
    block = re.search(r"## The example data.*?```json\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    return Scope(json.loads(block[1]), NOW_MS)


@pytest.mark.parametrize(("written", "gives"), rows())
def test_the_example_gives_what_the_page_says(written: str, gives: str | None) -> None:
    if gives is None:
        with pytest.raises(ExpressionError):
            evaluate(written, scope())
        return
    result = evaluate(written, scope())
    wanted = json.loads(gives)
    assert result == wanted
    assert json.dumps(result) == json.dumps(wanted)  # 1 is not 1.0 and not true


def test_every_function_has_an_example() -> None:
    shown = {name for written, _ in rows() for name in re.findall(r"\$F\.(\w+)\(", written)}
    assert shown == set(functions.BUILT_IN)
    assert len(functions.BUILT_IN) == 73


def test_every_root_is_named() -> None:
    for root in (*ROOTS, *LOOP_ROOTS):
        assert f"`${root}`" in TEXT

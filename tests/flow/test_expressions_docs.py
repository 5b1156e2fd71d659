"""docs/expressions.md is true: every example of its tables is evaluated with the data it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from plaita.callback_url import CallbackKey, execution_key
from plaita.errors import ExpressionError
from plaita.flow import functions
from plaita.flow.callback_urls import CallbackUrls
from plaita.flow.expr_scope import LOOP_ROOTS, ROOTS
from plaita.flow.expressions import Scope, evaluate
from plaita.flow.model import parse_flow
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry

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
    roots = json.loads(block[1])
    execution = roots["EXECUTION_ID"]
    nodes = [
        {"type": "start", "id": "s", "next": "paid"},
        {"type": "http_callback", "id": "paid", "next": "e"},
        {"type": "end", "id": "e"},
    ]
    plans = parse_flow({"nodes": nodes}, NodeRegistry(BUILT_IN)).plans
    key = CallbackKey(execution_key("secret", "plaita", "default", execution), "https://flows.example")
    urls = CallbackUrls(plans, key, "default", execution, lambda node: 1)
    return Scope(roots, NOW_MS, callback_url=urls)


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
    assert len(functions.BUILT_IN) == 74


def test_every_root_is_named() -> None:
    for root in (*ROOTS, *LOOP_ROOTS):
        assert f"`${root}`" in TEXT

"""What commands print: one JSON document for scripts, tables for people. Everything else goes to stderr.

Text that came from data is shown with its control characters spelled out, so that no stored text can write to a
terminal what it likes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from plaita import jsontext

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 240  # a pipe has no width of its own; ids must not be folded
_NARROWEST = 120  # narrower terminals wrap the lines themselves: unlike cut ids and folded times, those can be read
_STATUS_STYLES = {
    "completed": "green",
    "error": "red",
    "cancelled": "yellow",
    "running": "cyan",
    "suspended": "magenta",
}


def print_json(document: Any) -> None:
    """One JSON document and a newline on stdout."""
    write_out(jsontext.dumps(document) + b"\n")


def write_out(data: bytes) -> None:
    """Bytes on stdout. A closed stdout (no descriptor 1) takes nothing; a broken pipe raises, the caller's exit."""
    if sys.stdout is None:
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """Progress and remarks for a person, on stderr."""
    if sys.stderr is not None:
        print(printable(text), file=sys.stderr, flush=True)


def printable(value: Any) -> str:
    """Text as it can be shown: control characters and lone surrogates as escapes; None as a dash."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else str(value)
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "backslashreplace").decode() for c in text
    )


def json_text(value: Any, limit: int = 2000) -> str:
    """A JSON value on one line, cut at ``limit`` characters: for tables."""
    text = jsontext.dumps(value).decode("utf-8")
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def console(*, stderr: bool = False) -> Console:
    """A console that never reads markup out of data. Colours only where it is a terminal."""
    from rich.console import Console

    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False)
    made.width = max(made.width, _NARROWEST) if made.is_terminal else _PIPE_WIDTH
    return made


def page_console() -> Console:
    """For pages that fit themselves: the true width of a terminal, and what COLUMNS says; a pipe is wide."""
    from rich.console import Console

    made = Console(markup=False, highlight=False, emoji=False)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = _PIPE_WIDTH
    return made


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> Any:
    """A table for people; the column named ``status`` is coloured by its value."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        made.add_column(name, no_wrap=name.lower() in ("execution", "status", "message", "id"), overflow="fold")
    for row in rows:
        cells = []
        for name, value in zip(columns, row, strict=True):
            text = printable(value)
            cells.append(Text(text, style=_STATUS_STYLES.get(text, "") if name.lower() == "status" else ""))
        made.add_row(*cells)
    return made


def facts(pairs: Iterable[tuple[str, Any]]) -> Any:
    """Name and value in two columns, without a heading."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        text = printable(value if value is None or isinstance(value, str) else json_text(value))
        made.add_row(name, Text(text, style=_STATUS_STYLES.get(text, "") if name == "status" else ""))
    return made

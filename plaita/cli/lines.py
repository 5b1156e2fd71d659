"""Lines that fit: texts cut at a width with an ellipsis, tables whose columns share what room there is.

Nothing here knows what it shows. What comes from data is made printable first, on one line: no id writes to a terminal
what it likes. Widths are in cells of a terminal (wide characters take two).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from plaita.cli.output import printable

GAP = 2
_LEAST = 6
_WHOLE = 36  # a UUID


def one_line(value: Any) -> str:
    """As it can be shown, a newline spelled out; None as a dash."""
    return printable(value).replace("\n", "\\n")


def cut(text: str, width: int) -> str:
    """At most ``width`` cells; what is cut ends with an ellipsis."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def share(wanted: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths of columns that together need no more than ``room``, where that can be: the widest gives way first, none
    below its ``least``."""
    widths = list(wanted)
    while sum(widths) > room:
        over = [index for index, width in enumerate(widths) if width > least[index]]
        if not over:
            break
        widths[max(over, key=lambda index: widths[index])] -= 1
    return widths


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    width: int,
    styles: Sequence[str] = (),
    *,
    right: str = "",
    whole: str = "",
) -> list[Text]:
    """A heading and a line a row, none wider than ``width``. ``right``: the names of columns of numbers. ``whole``:
    the column that is cut last, since people copy from it. ``styles``: one a row."""
    cells = [[one_line(value) for value in row] for row in rows]
    wanted = [
        max([cell_len(name), *(cell_len(row[index]) for row in cells)], default=0) for index, name in enumerate(columns)
    ]
    numbers = right.split()
    least = [
        needed if name in numbers else min(needed, max(cell_len(name), _LEAST))
        for name, needed in zip(columns, wanted, strict=True)
    ]
    room = width - GAP * (len(columns) - 1)
    kept = [
        min(needed, _WHOLE) if name == whole else low for name, needed, low in zip(columns, wanted, least, strict=True)
    ]
    widths = share(wanted, kept if sum(kept) <= room else least, room)
    lines = [_line(columns, widths, columns, numbers, "dim", width)]
    for index, row in enumerate(cells):
        lines.append(_line(row, widths, columns, numbers, styles[index] if index < len(styles) else "", width))
    return lines


def _line(
    cells: Sequence[str], widths: Sequence[int], columns: Sequence[str], numbers: Sequence[str], style: str, width: int
) -> Text:
    parts = []
    for text, room, name in zip(cells, widths, columns, strict=True):
        shown = cut(text, room)
        padding = " " * (room - cell_len(shown))
        parts.append(padding + shown if name in numbers else shown + padding)
    return Text(cut((" " * GAP).join(parts).rstrip(), width), style=style, no_wrap=True)


def wrapped(text: str, width: int, style: str = "", indent: str = "") -> list[Text]:
    """A sentence over as many lines as it takes; a word longer than a line is cut up."""
    lines: list[str] = []
    line = ""
    for word in one_line(text).split(" "):
        room = width if not lines else width - len(indent)
        while cell_len(word) > room:
            if line:
                lines, line = [*lines, line], ""
                room = width - len(indent)
                continue
            piece = set_cell_size(word, room)
            lines, word = [*lines, piece.rstrip()], word[len(piece) :]
            room = width - len(indent)
        if line and cell_len(line) + 1 + cell_len(word) > room:
            lines, line = [*lines, line], word
        else:
            line = f"{line} {word}" if line else word
    return [
        Text((indent if index else "") + one, style=style, no_wrap=True) for index, one in enumerate([*lines, line])
    ]

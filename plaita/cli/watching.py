"""``status --watch``: asks each second and shows the page, through restarts of the supervisor, until Ctrl-C.

On a terminal it draws over itself on the alternate screen; into a pipe, or on a terminal that cannot move its cursor,
it prints page after page.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from plaita.cli import exits, status_view
from plaita.cli.control_client import SilentError
from plaita.cli.rates import Rates
from plaita.cli.status_page import gone_page, page
from plaita.clock import wall_ms
from plaita.errors import PlaitaError

Ask = Callable[[], dict[str, Any]]
Show = Callable[[list[Text]], None]


class Watch:
    """``ask`` answers ``status`` or raises PlaitaError."""

    def __init__(self, ask: Ask, console: Console, every_s: float = 1.0) -> None:
        self._ask = ask
        self._console = console
        self._every_s = every_s
        self._rates = Rates()
        self._last: dict[str, Any] | None = None
        self._seen_ms: int | None = None
        self._gone_ms: int | None = None

    def run(self) -> int:
        """Until Ctrl-C; the exit code is that of ``status`` at the last look."""
        lines: list[Text] = []
        try:
            with _told_to_end(), self._screen() as show:
                while True:
                    began = time.monotonic()
                    lines = self._look()
                    show(lines)
                    time.sleep(max(0.05, self._every_s - (time.monotonic() - began)))
        except KeyboardInterrupt:
            pass
        if self._in_place:
            self._print(lines)  # the alternate screen is gone: what was seen last stays
        if self._gone_ms is not None or self._last is None:
            return exits.UNREACHABLE
        return exits.DONE if status_view.serves_well(self._last) else exits.FAILED

    def _look(self) -> list[Text]:
        width, height = self._console.size if self._in_place else (self._console.width, None)
        try:
            status = self._ask()
        except PlaitaError as error:
            now = wall_ms()
            self._gone_ms = self._gone_ms or now
            title = "not answering" if isinstance(error, SilentError) else "not running"
            why_not = "; ".join(exits.lines_of(error))
            return gone_page(self._last, why_not, width, now, self._gone_ms, self._seen_ms, title=title)
        self._last, self._seen_ms, self._gone_ms = status, wall_ms(), None
        self._rates.add(status, time.monotonic())
        return page(status, width, self._seen_ms, height=height, rates=self._rates)

    @property
    def _in_place(self) -> bool:
        return self._console.is_terminal and not self._console.is_dumb_terminal

    @contextlib.contextmanager
    def _screen(self) -> Iterator[Show]:
        if not self._in_place:
            yield self._print_page
            return
        with Live(console=self._console, screen=True, auto_refresh=False, transient=True) as live:
            yield lambda lines: live.update(Group(*lines), refresh=True)

    def _print_page(self, lines: list[Text]) -> None:
        self._print([*lines, Text()])
        sys.stdout.flush()

    def _print(self, lines: list[Text]) -> None:
        for line in lines:
            self._console.print(line, soft_wrap=True)


@contextlib.contextmanager
def _told_to_end() -> Iterator[None]:
    """SIGTERM and SIGHUP end it like Ctrl-C: a terminal must get its screen and its cursor back."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

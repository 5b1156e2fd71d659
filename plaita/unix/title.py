"""The process title, as ``ps`` shows it."""

from __future__ import annotations

import setproctitle


def set_title(title: str) -> None:
    """Show ``title`` instead of the command line. Under a microsecond; cut to the room that the arguments left.

    Where SPT_NOENV is set the environment's memory stays as it is; without it the tree mark would be overwritten.
    """
    setproctitle.setproctitle(title)

"""The ``plaita-supervisor`` program from its first moment on.

Reading its modules takes a while, in which a stop must not be lost: as the first process of a container it would be,
for the kernel ignores a signal that such a process has no handler for. Nothing has been started by then, so the end is
clean at once. Imports nothing but the standard library before that.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(0)


def main() -> None:
    """As ``plaita.cli.supervisor``."""
    if sys.argv[1:2] == ["run"]:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from plaita.cli.supervisor import main as supervisor

    supervisor()


if __name__ == "__main__":
    main()

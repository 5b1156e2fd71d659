"""Python stacks on stderr: when the process crashes, and on SIGUSR1. Written by C code that takes no lock."""

from __future__ import annotations

import faulthandler
import signal

STDERR = 2


def install() -> None:
    """(Again) take the handlers of crash signals and of SIGUSR1, whoever has replaced them meanwhile."""
    faulthandler.disable()  # it does not notice that it was replaced: only anew does it take its handlers
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.enable(STDERR)
    faulthandler.register(signal.SIGUSR1, STDERR, all_threads=True)

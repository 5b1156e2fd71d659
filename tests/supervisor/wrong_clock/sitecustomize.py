"""A host whose wall clock is wrong: off by as many seconds as the file named by WRONG_CLOCK says at that moment."""

import os
import time

_file = os.environ.get("WRONG_CLOCK")
if _file:

    def _off_ns(real=time.time_ns):
        try:
            with open(_file, encoding="ascii") as file:
                return real() + int(file.read() or 0) * 10**9
        except (OSError, ValueError):
            return real()

    time.time_ns = _off_ns
    time.time = lambda: _off_ns() / 10**9

"""For every test process: the signal dispositions of an ordinary one, however the run was started.

A shell starts background jobs with SIGINT and SIGQUIT ignored; ignored signals stay ignored over exec, and programs
under test would then not see what a test sends them.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

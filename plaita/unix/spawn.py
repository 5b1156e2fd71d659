"""Starting a program by exec from a process that has threads: posix_spawn, never fork."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

CHANNEL_FD = 3


def spawn_with_channel(
    argv: Sequence[str],
    environment: Mapping[str, str],
    channel_fd: int,
    *,
    stdout_fd: int | None = None,
    stderr_fd: int | None = None,
) -> int:
    """Start ``argv[0]`` in a session of its own, ``channel_fd`` as its descriptor 3, stdin on /dev/null; its pid.

    stdout and stderr are inherited unless given. In the program no signal is blocked and all are at their defaults.
    Raises OSError. The caller keeps ``channel_fd`` and closes it when it has no more use for it.
    """
    actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, given, wanted)  # before 3 is overwritten: one of these may be descriptor 3 itself
        for given, wanted in ((stdout_fd, 1), (stderr_fd, 2))
        if given is not None
    ]
    actions.append((os.POSIX_SPAWN_DUP2, channel_fd, CHANNEL_FD))
    actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    resettable = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
    return os.posix_spawn(
        argv[0],
        list(argv),
        dict(environment),
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=resettable,
    )

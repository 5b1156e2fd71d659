"""An executor's life: from the fork to its end. Bytes in, bytes out; no Redis, no lease, no credentials.

Owns the order of the first moments (DESIGN "An executor at birth") and the loop: read a frame, run a step, answer.
What is done in a step is ``step``'s; what is put right after it is ``hygiene``'s. It ends by ``os._exit`` only: exit
handlers and buffers inherited from the template are not its own (trouble 52).
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from typing import NoReturn

from plaita.errors import FrameError, InputError
from plaita.executor import crash_reports
from plaita.executor.contexts import Contexts
from plaita.executor.hygiene import Hygiene
from plaita.executor.plugins import LatePlugin, load_late
from plaita.executor.randomness import reseed
from plaita.executor.step import StepRunner
from plaita.executor.stopping import StopSignal
from plaita.ipc.blocking import FrameConnection
from plaita.ipc.messages import Hello, Leave, decode_to_executor
from plaita.nodes.registry import NodeRegistry
from plaita.unix import prctl
from plaita.unix.limits import cap_data_mib, no_core_files
from plaita.unix.processes import close_fds_except, set_oom_score_adj, text_stream

FRAME_FD = 3
OOM_SCORE_ADJ = 500
PARENT_WAIT_S = 10.0
EXIT_ORPHAN = 71
EXIT_BUG = 70
EXIT_LATE_PLUGIN = 78


@dataclass(frozen=True, slots=True)
class Newborn:
    """What an executor gets from the template: its descriptors, its place, and what was imported."""

    slot: int
    generation: int
    supervisor: int
    socket_fd: int
    stdout_fd: int
    stderr_fd: int
    rlimit_data_mib: int | None
    started_ms: int
    registry: NodeRegistry
    late: tuple[LatePlugin, ...]
    preloaded: tuple[str, ...]
    temporary: str = ""


def live(newborn: Newborn) -> NoReturn:
    """Be an executor, from right after the fork (all signals blocked) to the end of the process."""
    code = EXIT_BUG
    try:
        code = _live(newborn)
    except BaseException:  # noqa: BLE001 - the last frame of this process: nothing may pass it
        traceback.print_exc()
    finally:
        leave(code)


def leave(code: int) -> NoReturn:
    """End this process: own streams flushed, nothing else."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads it any more, or node code closed it
            continue
    os._exit(code)


def _live(newborn: Newborn) -> int:
    os.setsid()
    connection = FrameConnection(_take_descriptors(newborn))
    stop = StopSignal()
    _reset_signals(stop)
    _own_state(newborn)
    if not _belong_to(newborn.supervisor):
        return EXIT_ORPHAN
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        load_late(newborn.late, newborn.registry)
    except InputError as error:
        print(f"plaita executor: {error}", file=sys.stderr, flush=True)
        return EXIT_LATE_PLUGIN
    hygiene = Hygiene(newborn.preloaded, FRAME_FD, newborn.temporary)
    runner = StepRunner(connection, Contexts(newborn.registry), stop, hygiene, f"plaita: executor {newborn.slot}")
    runner.rest()
    connection.send(
        Hello(os.getpid(), newborn.generation, newborn.slot, platform.python_version(), newborn.started_ms).to_frame()
    )
    return _serve(connection, runner, stop)


def _serve(connection: FrameConnection, runner: StepRunner, stop: StopSignal) -> int:
    """Read and run until the supervisor has no more; the exit code."""
    while True:
        try:
            stop.begin_idle()
            frame = connection.receive()
            stop.end_idle()
            if frame is None:
                return 0
            message = decode_to_executor(frame)
        except FrameError as error:
            print(f"plaita executor: the supervisor's frames cannot be read: {error}", file=sys.stderr, flush=True)
            return EXIT_BUG
        except OSError:  # the supervisor is gone
            return 0
        if isinstance(message, Leave):
            return 0
        try:
            if not runner.run(message):
                return 0
        except (BrokenPipeError, ConnectionResetError):  # the supervisor is gone, the answer nobody's
            return 0


# -- the first moments ----------------------------------------------------------------------------


def _take_descriptors(newborn: Newborn) -> socket.socket:
    """stdin, stdout, stderr on 0 to 2, the frames on 3, everything else closed. The given ones are never below 4: the
    template keeps 0 to 3 for itself."""
    os.dup2(newborn.stdout_fd, 1)
    os.dup2(newborn.stderr_fd, 2)
    os.dup2(newborn.socket_fd, FRAME_FD, inheritable=False)
    close_fds_except((0, 1, 2, FRAME_FD))
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = text_stream(descriptor)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return socket.socket(fileno=FRAME_FD)


def _reset_signals(stop: StopSignal) -> None:
    """Everything at its default, as Python has it (SIGPIPE and SIGXFSZ ignored), SIGINT ignored, SIGTERM ours.

    All are still blocked: a SIGTERM that came since the fork is delivered when they are unblocked.
    """
    ignored = {signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    crash_reports.install()
    stop.install()


def _own_state(newborn: Newborn) -> None:
    """What must not be shared with siblings, or is an executor's alone."""
    set_oom_score_adj(OOM_SCORE_ADJ)
    no_core_files()
    if newborn.rlimit_data_mib is not None:
        cap_data_mib(newborn.rlimit_data_mib)
    prctl.set_child_subreaper()  # what nodes leave behind, daemons too, becomes ours and is ended after the step
    _own_temporary_folder(newborn.temporary)
    _forget_resource_tracker()
    reseed()
    asyncio.set_event_loop_policy(None)


def _own_temporary_folder(path: str) -> None:
    """For all that asks for one, programs that nodes start included."""
    if path:
        os.environ["TMPDIR"] = path
        tempfile.tempdir = None  # what the template found is no more right


def _forget_resource_tracker() -> None:
    """One that a plug-in started on import is the template's: its descriptor, closed here, may soon be another's."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    if module is not None:
        tracker = module._resource_tracker
        tracker._fd = tracker._pid = None


def _belong_to(supervisor: int) -> bool:
    """Wait until the supervisor is the parent, then ask to die with it. False when another is, or nobody in time.

    Set before that, the parent-death signal would come from the exit of the middle process.
    """
    middle, deadline = os.getppid(), time.monotonic() + PARENT_WAIT_S
    while (parent := os.getppid()) != supervisor:
        if parent != middle or parent == 1 or time.monotonic() > deadline:
            return False
        time.sleep(0.0002)
    prctl.set_pdeathsig(signal.SIGKILL)
    return os.getppid() == supervisor

"""``plaita run``: one flow to its end on a server and a supervisor of its own, which are gone afterwards.

Owns the temporary folder and the two processes in it. However the command ends (end of the flow, error, Ctrl-C,
SIGTERM), the supervisor is stopped, then the server, then the folder is removed. If this process is killed outright,
the supervisor gets a SIGTERM from the kernel.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from plaita.cli.control_client import ask
from plaita.cli.definitions import Definition
from plaita.client import Client, operations
from plaita.errors import PlaitaError, UnreachableError
from plaita.runtime_config import load_client_config
from plaita.unix.prctl import set_pdeathsig

_READY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.05
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(PlaitaError):
    """The command was told to stop by a signal."""


@contextmanager
def _terminated_as_error() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind like Ctrl-C, so that nothing is left behind. The first signal is all it takes: later
    ones would only break off the cleaning up, which has limits of its own."""

    stopped = False

    def stop(number: int, _frame: Any) -> None:
        nonlocal stopped
        if stopped:
            return
        stopped = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise StoppedError(f"stopped by {signal.Signals(number).name}")

    handled = [each for each in _STOP_SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]  # nohup, `&` in scripts
    before = {number: signal.signal(number, stop) for number in handled}
    try:
        yield
    finally:
        if not stopped:  # else the program ends, and does so with the code of the first signal
            for number, handler in before.items():
                signal.signal(number, handler)


def _supervisor_command(folder: str, preloads: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "plaita.cli.supervisor", "run", "--embedded", f"{folder}/data"]
    command += ["--socket", f"{folder}/s.sock", "--executors", "1", "--instance-id", f"run-{os.getpid()}"]
    command += ["--drain-timeout", "2", "--kill-grace", "1", "--no-registry", "--log-level", "WARNING"]
    command += ["--metrics-port", "0"]  # the environment may name the port of the supervisor beside it
    for module in preloads:
        command += ["--preload", module]
    return command


def _started(process: subprocess.Popen[bytes], socket_path: str) -> None:
    """Return when the supervisor runs; PlaitaError when it ended or takes too long."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        code = process.poll()
        if code is not None:
            raise PlaitaError(f"the private supervisor ended with exit code {code} before it was ready")
        try:
            answer = ask(socket_path, "status", timeout=5.0)
            if answer.get("serving"):
                return
        except UnreachableError:
            pass  # it has not bound its socket yet
        time.sleep(_POLL_SECONDS)
    raise UnreachableError(f"the private supervisor was not ready within {_READY_SECONDS:g} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for send in (process.terminate, process.terminate, process.kill):  # drain, force, kill
        send()
        try:
            process.wait(_STOP_SECONDS / 3)
            return
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def run_privately(
    definition: Definition, given: Any, preloads: Sequence[str], timeout: float | None, tenant: str | None
) -> dict[str, Any]:
    """The execution as ``show`` gives it, after its end or at its first wait. Raises WaitTimeoutError after ``timeout``
    seconds."""
    process: subprocess.Popen[bytes] | None = None
    with _terminated_as_error():
        folder = tempfile.mkdtemp(prefix="plaita-run-")
        try:
            process = subprocess.Popen(
                _supervisor_command(folder, preloads),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if sys.stderr is not None else subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches this process only, which then stops it in order
                preexec_fn=lambda: set_pdeathsig(signal.SIGTERM),  # this process has one thread here
            )
            _started(process, f"{folder}/s.sock")
            config = load_client_config(flags={"embedded": f"{folder}/data", "tenant": tenant})
            with Client.from_config(config) as client:
                client.perform(
                    operations.put_flow(
                        client.keys, definition.flow_id, None, definition.flow_hash, definition.body, force=False
                    )
                )
                started = client.start(definition.flow_id, given)
                try:
                    ids = [started.execution_id]
                    return client.perform(operations.wait(client.keys, ids, timeout, until_waiting=True))[0]
                finally:
                    _stop(process)  # before the client lets go: the last user of the server stops it
        finally:
            if process is not None and process.poll() is None:
                _stop(process)
            shutil.rmtree(folder, ignore_errors=True)

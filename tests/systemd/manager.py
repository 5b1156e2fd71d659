"""A service manager for tests: starts what a unit file says, as systemd would, below a folder instead of /.

It takes the unit's own lines for environment, credentials, folders, umask, oom score, rights, descriptors, notification
socket, watchdog, stop signal and ExecStopPost. Mount namespaces, seccomp and cgroups are systemd's alone.
"""

from __future__ import annotations

import array
import contextlib
import os
import resource
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unit_file import Unit, read_environment_file

from plaita.cli.control_client import ask
from plaita.errors import PlaitaError

CEILING_S = 60.0
CREDENTIAL_BYTES = struct.calcsize("3i")


@dataclass(frozen=True, slots=True)
class Said:
    """One datagram to the manager, and the pid that the kernel says it came from."""

    pid: int
    lines: tuple[str, ...]


class Manager:
    """One service, started once. ``root`` stands for /: etc/plaita, etc/credstore, run and var/lib are below it."""

    def __init__(self, unit: Unit, root: Path, host: str = "testhost") -> None:
        self.unit, self.root, self.host = unit, root, host
        self.said: list[Said] = []
        self.log = root / "journal"
        self._address = root / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(str(self._address))
        self._credentials = root / "run/credentials"
        self._runtime = root / "run" / self._expand(unit.one("RuntimeDirectory"))
        self._state = root / "var/lib" / self._expand(unit.one("StateDirectory"))
        for folder, mode in ((self._runtime, "RuntimeDirectoryMode"), (self._state, "StateDirectoryMode")):
            folder.mkdir(parents=True)
            folder.chmod(int(unit.one(mode), 8))
        self._load_credentials()
        self._environment = self._make_environment()
        self.process: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    # -- what it gives ----------------------------------------------------------------------------------------

    @property
    def socket(self) -> Path:
        return self._runtime / "supervisor.sock"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> Manager:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self._rights(), *self._command("ExecStart")],
                env=self._environment,
                cwd=self._state,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                umask=int(self.unit.one("UMask"), 8),
                preexec_fn=self._limits,
            )
        return self

    def reload(self) -> None:
        line = self.unit.one("ExecReload").replace("$MAINPID", str(self.pid))
        subprocess.run(shlex.split(line), check=True, env=self._environment)

    def stop(self) -> int:
        """``systemctl stop``: the signal to the main process, ExecStopPost= afterwards; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.Signals[self.unit.one("KillSignal")])
        return self.ended()

    def ended(self) -> int:
        """The exit code (negative: the signal), when it has ended and ExecStopPost= has run."""
        assert self.process is not None
        code = self.process.wait(float(self.unit.seconds("TimeoutStopSec")))
        end = {"EXIT_CODE": "exited", "EXIT_STATUS": str(code), "SERVICE_RESULT": "exit-code" if code else "success"}
        if code < 0:
            name = signal.Signals(-code).name.removeprefix("SIG")
            end = {"EXIT_CODE": "killed", "EXIT_STATUS": name, "SERVICE_RESULT": "signal"}
        self.after = subprocess.run(
            self._command("ExecStopPost"), env={**self._environment, **end}, capture_output=True, text=True, cwd="/"
        )
        return code

    def starts_again(self, code: int) -> bool:
        """What Restart= says of this end, when nobody asked for it."""
        if str(code) in self.unit.one("RestartPreventExitStatus").split():
            return False
        return {"always": True, "on-failure": code != 0, "no": False}[self.unit.one("Restart")]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._socket.close()

    # -- what it hears ------------------------------------------------------------------------------------------

    def wait_said(self, line: str, after: int = 0) -> Said:
        """The first datagram with a line that begins so, of those from number ``after`` on."""
        return self.until(
            lambda: next((s for s in self.said[after:] if any(x.startswith(line) for x in s.lines)), None), line
        )

    def wait_said_late(self, line: str, after: int) -> Said:
        """As ``wait_said``, for what may be heard when the process is gone."""
        deadline = time.monotonic() + CEILING_S
        while time.monotonic() < deadline:
            for said in self.said[after:]:
                if any(found.startswith(line) for found in said.lines):
                    return said
            time.sleep(0.01)
        raise AssertionError(f"never came: {line}\n{self.said}")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + CEILING_S
        while not (answer := condition()):
            ended = self.process is not None and self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"never came: {what}\n{self.said}\n{self.log.read_text('utf-8')[-4000:]}")
            time.sleep(0.01)
        return answer

    def ask(self, command: str) -> dict[str, Any] | None:
        try:
            return ask(str(self.socket), command, timeout=5.0)
        except PlaitaError:
            return None

    def _listen(self) -> None:
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(CREDENTIAL_BYTES))
            except OSError:
                return
            if not data:
                return
            pid = next(
                (array.array("i", found[:CREDENTIAL_BYTES])[0] for _, kind, found in ancillary if kind == 2), 0
            )  # SCM_CREDENTIALS
            self.said.append(Said(pid, tuple(data.decode("utf-8").splitlines())))

    # -- as the unit says ----------------------------------------------------------------------------------------

    def _expand(self, text: str) -> str:
        return self.unit.expand(text, self.host, str(self._credentials))

    def _load_credentials(self) -> None:
        """Without a path: taken from the stores where it is there, else left out."""
        self._credentials.mkdir(parents=True, mode=0o700)
        for name in self.unit.all("LoadCredential"):
            for store in ("etc/credstore", "run/credstore", "usr/lib/credstore"):
                source = self.root / store / name
                if source.exists():
                    shutil.copy(source, self._credentials / name)
                    break

    def _make_environment(self) -> dict[str, str]:
        made = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        for line in self.unit.all("Environment"):
            name, _, value = self._expand(line).partition("=")
            made[name] = value
        made["PATH"] = made["PATH"].replace("/opt/plaita/bin", str(Path(sys.executable).parent))
        for given in self.unit.all("EnvironmentFile"):
            assert given.startswith("-/"), "a missing file must not fail the unit"
            made.update(read_environment_file(self.root / self._expand(given)[2:]))
        made.update(
            NOTIFY_SOCKET=str(self._address),
            WATCHDOG_USEC=str(self.unit.seconds("WatchdogSec") * 1_000_000),
            RUNTIME_DIRECTORY=str(self._runtime),
            STATE_DIRECTORY=str(self._state),
            CREDENTIALS_DIRECTORY=str(self._credentials),
            INVOCATION_ID=uuid.uuid4().hex,
        )
        return made

    def _command(self, name: str) -> list[str]:
        return shlex.split(self._expand(self.unit.one(name)).removeprefix("-"))

    def _rights(self) -> list[str]:
        """As root: only the capabilities that the unit leaves, and never more; else nothing can be taken away."""
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            return []
        left = [f"+{name.removeprefix('CAP_').lower()}" for name in self.unit.one("CapabilityBoundingSet").split()]
        return ["setpriv", "--no-new-privs", f"--bounding-set={','.join(['-all', *left])}", "--"]

    def _limits(self) -> None:
        number = min(self.unit.seconds("LimitNOFILE"), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
        with contextlib.suppress(OSError):  # lower than one's own takes CAP_SYS_RESOURCE, which systemd has
            os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), self.unit.one("OOMScoreAdjust").encode())

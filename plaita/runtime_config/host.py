"""What a configuration needs of this host: folders, socket paths, users. Looks only, changes nothing."""

from __future__ import annotations

import errno
import os
import pwd
import stat
import threading
from collections.abc import Mapping
from pathlib import Path

from plaita.runtime_config.redis_tls import tls_context
from plaita.runtime_config.redis_url import mask_url, read_redis_url
from plaita.runtime_config.settings import MAX_SOCKET_PATH_BYTES, ConnectionConfig, SupervisorConfig, settings_of

ANSWERS_WITHIN_S = 2.0
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES}


def _ancestor(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def folder_fault(path: Path) -> str | None:
    """Why a folder cannot be made or written at ``path``; None when it can. Looks, changes nothing."""
    try:
        nearest = _ancestor(path)
        if not nearest.is_dir():
            return f"{nearest} is no folder"
        if not os.access(nearest, os.W_OK | os.X_OK):
            return f"{nearest} cannot be written by this user"
    except OSError as error:
        return f"{error.strerror}"
    return None


def host_faults(config: ConnectionConfig, sources: Mapping[str, str]) -> list[str]:
    """What is wrong with a configuration on *this* host: folders, paths, users, names too long for a socket."""

    def fault(name: str, reason: str) -> str:
        setting = settings_of(type(config))[name]
        source = sources.get(name, f"default of {name}")
        return f"{source}: {getattr(config, name)!r}: {reason}; right is {setting.right}"

    faults: list[str] = []
    if config.embedded is None and (options := read_redis_url(config.redis_url).tls):
        try:
            tls_context(options)
        except ValueError as error:
            source = sources.get("redis_url", "default of redis_url")
            faults.append(f"{source}: {mask_url(config.redis_url)!r}: {error}; right is a file this user can read")
    if not isinstance(config, SupervisorConfig):
        return faults
    if config.embedded is not None and (reason := folder_fault(Path(config.embedded))):
        faults.append(fault("embedded", reason))
    if reason := socket_path_fault(config.socket):
        faults.append(fault("socket", reason))
    if reason := _path_fault(config.disk_guard_path):
        faults.append(fault("disk_guard_path", reason))
    if config.executor_user is not None:
        try:
            pwd.getpwnam(config.executor_user)
        except (KeyError, ValueError):
            faults.append(fault("executor_user", "there is no such user"))
        else:
            if os.geteuid() != 0:
                faults.append(fault("executor_user", "only a supervisor started as root can change to another user"))
    return faults


def _path_fault(path: str) -> str | None:
    """Why there is nothing at ``path``; None when there is. A file system that does not answer, or that is ill, is no
    fault of the path: the start goes on, and the disk guard tells (ledger G5)."""
    found: list[str] = []

    def work() -> None:
        try:
            os.statvfs(path)
        except OSError as error:
            if error.errno in _NOT_THERE:
                found.append(error.strerror or str(error))

    thread = threading.Thread(target=work, name="path check", daemon=True)
    thread.start()
    thread.join(ANSWERS_WITHIN_S)
    return found[0] if found else None


def socket_path_fault(path: str) -> str | None:
    """Why no socket can stand at ``path``; None when one can. A live socket there is the daemon's own affair."""
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH_BYTES:
        return f"the path has {size} bytes, the kernel takes at most {MAX_SOCKET_PATH_BYTES}"
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return folder_fault(Path(path).parent)
    except OSError as error:
        return f"{error.strerror}"
    return None if stat.S_ISSOCK(mode) else "something else than a socket stands there, which is left alone"


def user_socket(environ: Mapping[str, str]) -> str:
    """The socket in this user's own runtime directory."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    folder = f"{runtime}/plaita" if runtime and runtime.startswith("/") else f"/tmp/plaita-{os.geteuid()}"
    return f"{folder}/supervisor.sock"


def default_socket(environ: Mapping[str, str]) -> str:
    """Where a supervisor listens when nobody says: systemd's runtime directory, else /run/plaita where it can be
    written, else a directory of the user's own."""
    given = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if given:
        return f"{given}/supervisor.sock"
    if folder_fault(Path("/run/plaita")) is None:
        return "/run/plaita/supervisor.sock"
    return user_socket(environ)

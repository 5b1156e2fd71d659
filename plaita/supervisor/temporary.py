"""The temporary folders of executors: one each, readable by its user alone, gone before the next one is born.

They stand in one folder of this supervisor, whose lock says that it lives: what a dead one left is swept at the next
start. Owns making and removing them. Must not: know what an executor is, nor wait on the loop for a removal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import tempfile
import threading
from collections.abc import Callable

from plaita.supervisor import logs

PREFIX = "plaita-executors-"
CLOSE_S = 5.0


class TemporaryFolders:
    """``user``: the one that executors run as, None for this process's own. Not for several threads."""

    def __init__(self, user: str | None = None) -> None:
        self._owner = None if user is None else pwd.getpwnam(user)
        self._lock = -1
        self.root = ""

    def open(self) -> str:
        """The folder of this supervisor; '' where there cannot be one now, which is logged, and tried again when an
        executor needs one: a full disk keeps nobody from starting."""
        try:
            return self._open()
        except OSError as error:
            logs.error("temporary.no_folder", error=error)
            return ""

    def _open(self) -> str:
        """Made and locked; its path. Raises OSError."""
        while True:
            root = tempfile.mkdtemp(prefix=PREFIX)
            # Another user must pass through, and can neither list it nor change what stands in it.
            os.chmod(root, 0o700 if self._owner is None else 0o711)
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is(root, descriptor):  # else: swept by another supervisor, in the moment before it was locked
                self._lock, self.root = descriptor, root
                return root
            os.close(descriptor)

    def make(self, number: int) -> str:
        """A new folder; its path. ``number`` is used once in the life of the supervisor. Raises OSError."""
        if not self.root:
            self._open()
        path = f"{self.root}/{number}"
        try:
            os.mkdir(path, 0o700)
        except FileNotFoundError:  # somebody took it away from under us
            os.close(self._lock)
            path = f"{self._open()}/{number}"
            os.mkdir(path, 0o700)
        if self._owner is not None:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        return path

    def remove(self, path: str, then: Callable[[], None]) -> bool:
        """Remove it with all that is in it. True: it is gone, as one that is empty is at once. False: a thread is at
        it, which calls ``then`` afterwards."""
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass
        except OSError:
            threading.Thread(target=_remove_and_tell, args=(path, then), name="plaita-remove", daemon=True).start()
            return False
        return True

    def close(self) -> None:
        """Remove what is left, for as long as is decent; the next start sweeps the rest."""
        if not self.root:
            return
        thread = threading.Thread(target=_remove, args=(self.root,), name="plaita-remove", daemon=True)
        thread.start()
        thread.join(CLOSE_S)
        os.close(self._lock)
        self._lock, self.root = -1, ""


def sweep_dead_folders() -> int:
    """Remove the folders of supervisors of this user that live no more; how many."""
    swept = 0
    try:
        entries = list(os.scandir(tempfile.gettempdir()))
    except OSError:  # no folder for temporary files, so nothing in it
        return 0
    for entry in entries:
        if not entry.name.startswith(PREFIX):
            continue
        try:
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(descriptor).st_uid == os.getuid() and _lockable(descriptor):
                _remove(entry.path)
                swept += 1
        finally:
            os.close(descriptor)
    return swept


def _lockable(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is(path: str, descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    return False


def _remove(path: str) -> None:
    """Follows no link. What cannot be removed is told once, and left."""
    faults: list[BaseException] = []

    def note(_function: object, _path: object, error: tuple[type[BaseException], BaseException, object]) -> None:
        if not isinstance(error[1], FileNotFoundError):
            faults.append(error[1])

    _unlock_folders(path)
    shutil.rmtree(path, onerror=note)
    if faults and os.path.lexists(path):
        logs.warning("temporary.not_removed", path=path, faults=len(faults), error=faults[0])


def _unlock_folders(path: str) -> None:
    """Folders that their owner may not write to, such as a node's own chmod makes, can be emptied again."""
    if os.geteuid() == 0:
        return
    for folder, folders, _files in os.walk(path):
        for name in folders:
            with contextlib.suppress(OSError):
                inner = os.path.join(folder, name)
                if not os.path.islink(inner):
                    os.chmod(inner, 0o700)


def _remove_and_tell(path: str, then: Callable[[], None]) -> None:
    _remove(path)
    then()

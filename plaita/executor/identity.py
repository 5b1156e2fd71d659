"""Whom a template runs as: itself, or the user of ``--user`` (DECISIONS 34)."""

from __future__ import annotations

import os
import pwd

from plaita.errors import InputError
from plaita.unix import prctl


def drop_to_user(name: str) -> None:
    """Become ``name``: groups, group, user, for good. Raises InputError when there is no such user or no right to.

    A change of user closes /proc/self to this process and makes the tree mark unreadable to its own template, so it is
    opened again: whoever runs under this uid holds no secret.
    """
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise InputError(f"--executor-user: there is no user {name!r}") from None
    if os.getresuid() == (entry.pw_uid,) * 3 and os.getresgid() == (entry.pw_gid,) * 3:
        return
    try:
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    except OSError as error:
        raise InputError(f"--executor-user {name}: only root can become another user ({error})") from error
    for needed in (os.__file__, __file__):
        if not os.access(needed, os.R_OK):
            raise InputError(f"--executor-user {name}: that user cannot read {needed}, which executors need")
    prctl.set_dumpable(True)
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)

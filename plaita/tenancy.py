"""Whose data the code at hand works on (ledger T1): one tenant a context, set on purpose or handed over, never guessed.

Owns: the current tenant, where it came from, and the count of who wanted to write under which. Must not: do I/O, know
any store, or fall back to ``default`` for a write.

A tenant is set by ``set_current_tenant``: by an entry point once, by a message from its ``tenant_id``. asyncio tasks
have it from whoever made them; a thread or another process has it where its function was wrapped by ``carried``. What
has it from elsewhere says ``derived``. A thread that nothing was handed to has none: its writes are refused.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from plaita import ids
from plaita.errors import InputError, TenantContextMissingError

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TENANT_ID = "default"
Source = Literal["explicit", "derived"]
NEVER_SET = "default"

_Place = tuple[int, "weakref.ref[threading.Thread]", "weakref.ref[Any] | None"]


@dataclass(frozen=True, slots=True)
class _Set:
    """``place``: process, thread and task that set it; seen from any other, it is derived."""

    tenant: str
    source: Source
    place: _Place


_current: ContextVar[_Set | None] = ContextVar("plaita_tenant", default=None)
_probes: Counter[tuple[str, str]] = Counter()
_probes_lock = threading.Lock()


def set_current_tenant(tenant: str, source: Source = "explicit") -> Token[Any]:
    """Work for this tenant from here on, in this context; the token is for ``reset_current_tenant``.

    Raises InputError for what is no tenant id (DECISIONS 18) or no source.
    """
    if source not in ("explicit", "derived"):
        raise InputError(f"source: {source!r} is none; a tenant is set as explicit or derived")
    return _current.set(_Set(_checked(tenant), source, _here()))


def reset_current_tenant(token: Token[Any]) -> None:
    """Back to what was current before the ``set_current_tenant`` that gave the token, in the same context."""
    _current.reset(token)


@contextmanager
def tenant_context(tenant: str, source: Source = "explicit") -> Iterator[str]:
    """``with tenant_context("acme"):``; what was current before is current again afterwards."""
    token = set_current_tenant(tenant, source)
    try:
        yield tenant
    finally:
        reset_current_tenant(token)


def set_default_tenant_once() -> None:
    """What an entry point does (worker, console, command): the default tenant, explicitly, unless one is set."""
    if _current.get() is None:
        set_current_tenant(DEFAULT_TENANT_ID)


def current_tenant() -> str:
    """The tenant to read for; ``default`` where none was ever set."""
    found = _current.get()
    return DEFAULT_TENANT_ID if found is None else found.tenant


def tenant_source() -> str:
    """``explicit``, ``derived``, or ``default`` where none was ever set."""
    found = _current.get()
    if found is None:
        return NEVER_SET
    return found.source if _same_place(found.place) else "derived"


def require_tenant(site: str) -> str:
    """The tenant to write for, at ``site`` (``credentials.save``). Each call counts for ``write_probe_snapshot``.

    Raises TenantContextMissingError where none was ever set: nothing is written to ``default`` by mistake (ledger T1).
    """
    source = tenant_source()
    with _probes_lock:
        _probes[(site, source)] += 1
    if source == NEVER_SET:
        raise TenantContextMissingError(site)
    return current_tenant()


def write_probe_snapshot() -> dict[tuple[str, str], int]:
    """How often each site wanted to write, by ``(site, source)``; source ``default`` was refused. Of this process."""
    with _probes_lock:
        return dict(_probes)


def carried(function: Callable[P, R]) -> Callable[P, R]:
    """The function with the tenant of this moment: for ``Thread(target=...)``, pools of threads and of processes.

    What it sees is ``derived``. With no tenant set it is the function itself, so that its writes are refused. Can be
    pickled where the function can.
    """
    found = _current.get()
    return function if found is None else Carried(function, found.tenant)


class Carried(Generic[P, R]):
    """A function and the tenant it works for, wherever it is called."""

    def __init__(self, function: Callable[P, R], tenant: str) -> None:
        self._function = function
        self._tenant = tenant

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        with tenant_context(self._tenant, "derived"):
            return self._function(*arguments, **named)


def _checked(tenant: object) -> str:
    name = ids.check_id(tenant, "tenant")
    for character in ":/":
        if character in name:
            raise InputError(f"tenant: {name!r} has the character {character!r}, which no tenant id may have")
    return name


def _here() -> _Place:
    task = _task()
    return os.getpid(), weakref.ref(threading.current_thread()), None if task is None else weakref.ref(task)


def _same_place(place: _Place) -> bool:
    pid, thread, task = place
    return (
        pid == os.getpid()
        and thread() is threading.current_thread()
        and (None if task is None else task()) is _task()
        and (task is None or task() is not None)
    )


def _task() -> Any:
    asyncio = sys.modules.get("asyncio")  # where nobody imported it, there are no tasks
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return None

"""The templates of one supervisor: the one that forks executors, at a reload the one that is to follow it, and those
that were told to leave and have not gone yet.

Owns which of them is asked and heard. A reload changes nothing until the new one is ready: everything goes on with the
old one, also when the new one never comes to stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plaita.ipc.template_socket import Ready, Spawned, SpawnFailed
from plaita.supervisor import logs
from plaita.supervisor.template_handle import TemplateHandle, TemplateSettings
from plaita.unix.reaper import Exit


class Templates:
    """``on_ready(replaced)`` when the current one stands (``replaced``: it took over from another);
    ``on_death(template)`` when any has died; ``on_fatal(reason)`` when the first one can never work;
    ``on_reload_failed(reason)`` when the coming one cannot."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: TemplateSettings,
        *,
        on_spawned: Callable[[Spawned, int], None],
        on_spawn_failed: Callable[[SpawnFailed], None],
        on_ready: Callable[[bool], None],
        on_death: Callable[[TemplateHandle], None],
        on_fatal: Callable[[str], None],
        on_reload_failed: Callable[[str], None],
        on_exit_hint: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._on_spawned = on_spawned
        self._on_spawn_failed = on_spawn_failed
        self._on_ready = on_ready
        self._on_death = on_death
        self._on_fatal = on_fatal
        self._on_reload_failed = on_reload_failed
        self._on_exit_hint = on_exit_hint
        self._old: dict[int, TemplateHandle] = {}
        self.current = self._new(0)
        self.coming: TemplateHandle | None = None
        self.node_types: list[str] = []
        self._stood = False  # one has, in this life of the supervisor

    def _new(self, generation: int) -> TemplateHandle:
        return TemplateHandle(
            self._loop,
            self._settings,
            generation=generation,
            on_ready=self._ready,
            on_spawned=self._on_spawned,
            on_spawn_failed=self._on_spawn_failed,
            on_fatal=self._fatal,
            on_death=self._on_death,
            on_exit_hint=self._on_exit_hint,
        )

    def tick(self, kill_at: int | None) -> None:
        """The dead-man switch of each: until an old one's last births are done, it alone knows of them."""
        self.current.tick(kill_at)
        for old in self._old.values():
            old.tick(kill_at)

    def reload(self) -> TemplateHandle:
        """Start the one that is to follow; an earlier one that has not come to stand may have imported what has changed
        since, and is dropped."""
        generation = self.current.generation
        if self.coming is not None:
            generation = max(generation, self.coming.generation)
            self.drop_coming()
        self.coming = self._new(generation)
        self.coming.start()
        return self.coming

    def drop_coming(self) -> None:
        """No reload any more; it may be inside an import for long, and nobody depends on it."""
        coming, self.coming = self.coming, None
        if coming is not None:
            self._retire(coming)
            coming.kill()

    def _retire(self, old: TemplateHandle) -> None:
        if old.pid is not None:
            self._old[old.pid] = old
        old.leave()

    def _ready(self, template: TemplateHandle, message: Ready) -> None:
        old = self.current
        if template is self.coming:
            self.current, self.coming = template, None
        elif template is not old:
            return  # a reload that was overtaken by another
        self._stood = True
        self.node_types = list(message.node_types)
        replaced = template is not old
        self._on_ready(replaced)
        if replaced:
            self._retire(old)  # the new one stands and watches over all executors

    def _fatal(self, template: TemplateHandle, reason: str) -> None:
        if template is self.current and self._stood:
            # Its executors serve on; once the code is repaired, the next try stands.
            logs.error(
                "template.broken", reason=reason, advice="executors that live serve on; repair it, it tries again"
            )
        elif template is self.current:
            template.stop()
            self._on_fatal(reason)
        elif template is self.coming:
            self.drop_coming()
            self._on_reload_failed(reason)

    def exited(self, ended: Exit) -> bool:
        """The reaper's word. True if it was a template."""
        cause = ended.describe()
        if self.current.pid == ended.pid:
            self.current.exited(cause)
            return True
        coming = self.coming
        if coming is not None and coming.pid == ended.pid:
            # One try: what dies or hangs in an import does so again, and the old one serves meanwhile.
            self.coming, reason = None, coming.why(cause)
            coming.stop()
            coming.exited(cause)
            self._on_reload_failed(reason)
            return True
        old = self._old.pop(ended.pid, None)
        if old is not None:
            old.exited(cause)
        return old is not None

    def known_pids(self) -> set[int]:
        """The templates that are not reaped yet."""
        standing = {template.pid for template in (self.current, self.coming) if template is not None}
        return set(self._old) | {pid for pid in standing if pid is not None}

    def stop(self) -> None:
        """Closing its socket makes a template sweep its tree and go; one that cannot hear it (it imports, or hangs) has
        forked nothing that outlives the supervisor, and is killed."""
        self.drop_coming()
        for template in (self.current, *self._old.values()):
            template.stop()
            if template.ready is None:
                template.kill()

    def kill(self) -> None:
        """SIGKILL to whoever is left."""
        for template in (self.current, *self._old.values()):
            template.kill()

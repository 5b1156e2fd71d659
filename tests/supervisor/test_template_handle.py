"""The supervisor's hand on the template: its last words are heard however it ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaita.ipc.template_socket import Fatal, send, socket_pair
from plaita.store.call import load_scripts, script
from plaita.supervisor.template_handle import TemplateHandle, TemplateSettings


@pytest.mark.parametrize("unread", [0, 3])
def test_a_template_that_ends_with_ticks_unread_is_still_heard(unread: int) -> None:
    """The kernel tells the reset first; a Fatal behind it that is not heard would make it start over and over."""

    async def main() -> list[str]:
        heard: list[str] = []
        ignore: Any = lambda *_: None  # noqa: E731
        handle = TemplateHandle(
            asyncio.get_running_loop(),
            TemplateSettings((), None, "mark"),
            on_ready=ignore,
            on_spawned=ignore,
            on_spawn_failed=ignore,
            on_fatal=lambda _, reason: heard.append(reason),
            on_death=ignore,
            on_exit_hint=ignore,
        )
        ours, theirs = socket_pair()
        ours.setblocking(False)
        handle._socket = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), ignore)
        for _ in range(unread):
            handle.tick(1)
        send(theirs, Fatal("no such module"), [])
        theirs.close()
        handle._readable()
        assert handle._socket is None
        return heard

    assert asyncio.run(main()) == ["no such module"]


def test_all_scripts_can_be_read_at_the_start() -> None:
    assert load_scripts() > 20
    assert "text" in vars(script("unregister")), "it is kept"

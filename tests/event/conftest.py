"""The suite runs on both buses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from plaita.event import MemoryEventBus, RedisEventBus
from plaita.testing.fixtures import plaita_server_process
from plaita.testing.server import Server

__all__ = ["plaita_server_process"]

_numbers = itertools.count(1)


@pytest.fixture(params=["redis", "memory"])
def bus(request: pytest.FixtureRequest) -> Iterator[RedisEventBus]:
    if request.param == "memory":
        made: RedisEventBus = MemoryEventBus()
    else:
        server: Server = request.getfixturevalue("plaita_server_process")
        name = f"bus{next(_numbers)}"
        made = RedisEventBus(server.url, key_prefix=name, queue_name=f"{name}:queue")
    with made:
        yield made

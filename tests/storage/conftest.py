"""The suite runs on both kinds of storage."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from storage_pair import Pair

from plaita.storage import (
    MemoryExecutionStorage,
    MemoryFlowStorage,
    RedisExecutionStorage,
    RedisFlowStorage,
)
from plaita.store.runner_sync import SyncRunner
from plaita.testing.fixtures import plaita_server_process
from plaita.testing.server import Server

__all__ = ["plaita_server_process"]

_prefixes = itertools.count()


@pytest.fixture(params=["redis", "memory"])
def pair(request: pytest.FixtureRequest, plaita_server_process: Server) -> Iterator[Pair]:
    if request.param == "memory":
        executions, flows = MemoryExecutionStorage(), MemoryFlowStorage()
        flows.keys = executions.keys  # as in a program that shares one server: loading a row reads its flow
    else:
        prefix = f"s{next(_prefixes)}"
        executions = RedisExecutionStorage(plaita_server_process.url, key_prefix=prefix)
        flows = RedisFlowStorage(plaita_server_process.url, key_prefix=prefix)
    with SyncRunner(executions.url) as runner:
        yield Pair(request.param, executions, flows, runner)
    executions.close()
    flows.close()

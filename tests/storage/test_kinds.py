"""Kinds by name (ledger F10), the private server's life, addresses of foreign clients, servers that do not answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from plaita.errors import ExecutionStateLoadError, InputError, StatePersistError, UnreachableError
from plaita.runtime_config.redis_url import read_redis_url
from plaita.storage import (
    ExecutionState,
    MemoryExecutionStorage,
    MemoryFlowStorage,
    RedisExecutionStorage,
    RedisFlowStorage,
    create_execution_storage,
    create_flow_storage,
)
from plaita.storage.client_url import url_of_client
from plaita.store.private import PrivateServer
from plaita.testing.server import Server

HOLDS = """
import os, sys
from plaita.storage import ExecutionState, MemoryExecutionStorage
storage = MemoryExecutionStorage()
storage.save_execution_state("e", ExecutionState(execution_id="e"))
print(storage.url.removeprefix("unix://"), flush=True)
sys.stdin.readline()
"""


def test_F10_memory_and_redis_are_the_kinds_and_db_is_refused_by_name() -> None:
    assert type(create_execution_storage("memory")) is MemoryExecutionStorage
    assert type(create_execution_storage("redis")) is RedisExecutionStorage
    assert type(create_flow_storage("memory")) is MemoryFlowStorage
    assert type(create_flow_storage("redis", "redis://elsewhere:1/2")) is RedisFlowStorage
    for create in (create_execution_storage, create_flow_storage):
        with pytest.raises(InputError, match="'db' is not supported"):
            create("db")
        with pytest.raises(InputError, match="there are memory and redis"):
            create("disk")


def test_memories_are_apart_from_each_other() -> None:
    one, other = MemoryExecutionStorage(), MemoryExecutionStorage()
    one.save_execution_state("e", ExecutionState(execution_id="e"))
    assert other.load_execution_state("e") is None
    assert one.load_execution_state("e") is not None
    assert one.url == other.url


def _gone(path: Path) -> bool:
    deadline = time.monotonic() + 10
    while path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("how", ["leaves", "killed"])
def test_the_private_server_ends_with_its_process_and_leaves_nothing(how: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    where = Path(process.stdout.readline().decode().strip())
    assert where.is_socket()
    assert [path.name for path in where.parent.iterdir()] == [where.name]  # nothing on disk but the socket
    if how == "killed":
        process.send_signal(signal.SIGKILL)
    process.communicate()
    assert _gone(where.parent)


def test_a_private_server_that_was_closed_starts_anew() -> None:
    private = PrivateServer()
    first = private.url
    assert private.url == first
    private.close()
    private.close()
    assert _gone(Path(first.removeprefix("unix://")).parent)
    assert private.url != first
    private.close()


def test_a_fork_does_not_end_it() -> None:
    private = PrivateServer()
    where = Path(private.url.removeprefix("unix://"))
    child = os.fork()
    if child == 0:
        private.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert where.is_socket()
    with RedisFlowStorage_at(private.url) as flows:
        assert flows.list_flows() == []
    private.close()


class RedisFlowStorage_at(RedisFlowStorage):
    def __enter__(self) -> RedisFlowStorage_at:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_a_client_of_redis_py_gives_its_address(plaita_server_process: Server) -> None:
    server = plaita_server_process
    client = redis.Redis(unix_socket_path=server.socket_path, password=server.password)
    storage = RedisExecutionStorage(client=client, key_prefix="py")
    storage.save_execution_state("e", ExecutionState(execution_id="e"))
    assert client.exists("py:execution:e")
    client.close()
    storage.close()
    assert url_of_client(redis.Redis()) == "redis://localhost:6379/0"
    url = "rediss://u:p%40@host:1/3"
    assert url_of_client(redis.Redis.from_url(url)) == url
    for url in (
        "unix://u:p@/a%20b.sock?db=2",
        "redis://u:@h:6379/0",
        "redis://[::1]:6379/0",
        "rediss://h:6379/0?ssl_ca_certs=%2Fca.pem&ssl_cert_reqs=none&ssl_check_hostname=false",
        "rediss://h:6379/0?ssl_certfile=%2Fc%26d.pem&ssl_keyfile=%2Fk.pem&ssl_password=x%2By",
    ):
        assert read_redis_url(url_of_client(redis.Redis.from_url(url))) == read_redis_url(url)
    sentinel = redis.Sentinel([("a", 1), ("b", 26379)], sentinel_kwargs={"password": "s"}, password="p", db=3)
    assert url_of_client(sentinel.master_for("my m")) == "redis+sentinel://:p@a:1,b:26379/my%20m/3?sentinel_password=s"
    with pytest.raises(InputError, match="replicas"):
        url_of_client(sentinel.slave_for("m"))
    for bad in (object(), None):
        with pytest.raises(InputError):
            url_of_client(bad)
    with pytest.raises(InputError, match="not both"):
        RedisExecutionStorage("redis://a", client=client)


def test_a_server_that_does_not_answer_is_named_by_what_was_wanted(tmp_path: Path) -> None:
    executions = RedisExecutionStorage(f"unix://{tmp_path}/none.sock")
    with pytest.raises(StatePersistError, match="was not saved"):
        executions.save_execution_state("e", ExecutionState(execution_id="e"))
    with pytest.raises(ExecutionStateLoadError, match="cannot be loaded"):
        executions.load_execution_state("e")
    with pytest.raises(ExecutionStateLoadError, match="cannot be listed"):
        executions.list_executions()
    with pytest.raises(StatePersistError):
        executions.delete_execution_state("e")
    with pytest.raises(UnreachableError):
        RedisFlowStorage(f"unix://{tmp_path}/none.sock").list_flows()
    with pytest.raises(InputError):
        RedisExecutionStorage("redis://a", retention_days=-1)

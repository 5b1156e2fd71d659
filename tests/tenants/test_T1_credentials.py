"""T1: the store of credentials fails closed without a tenant, keeps tenants apart, and shows no value at rest."""

from __future__ import annotations

import contextvars
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from plaita import tenancy
from plaita.credentials import CredentialStore, MemoryCredentialStore, RedisCredentialStore, Seal, new_key
from plaita.credentials.seal import SealError
from plaita.errors import ConfigError, InputError, TenantContextMissingError
from plaita.store.call import Call
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import Server

T = TypeVar("T")
SECRET = {"user": "ann", "password": "hunter2-密码"}


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(params=["memory", "redis"])
def store(request: Any, plaita_server_process: Server, prefix: str) -> Iterator[CredentialStore]:
    if request.param == "memory":
        yield MemoryCredentialStore()
        return
    with RedisCredentialStore(plaita_server_process.url, key_prefix=prefix, key=new_key()) as made:
        yield made


def fresh(function: Callable[[], T]) -> T:
    return contextvars.Context().run(function)


def as_tenant(tenant: str, function: Callable[..., T], *arguments: Any) -> T:
    def work() -> T:
        tenancy.set_current_tenant(tenant)
        return function(*arguments)

    return fresh(work)


def test_T1_save_and_delete_without_a_tenant_are_refused_and_write_nothing(store: CredentialStore) -> None:
    as_tenant("default", store.save, "kept", SECRET)
    with pytest.raises(TenantContextMissingError, match=r"credentials\.save"):
        fresh(lambda: store.save("db", SECRET))
    with pytest.raises(TenantContextMissingError, match=r"credentials\.delete"):
        fresh(lambda: store.delete("kept"))
    assert as_tenant("default", store.list) == ["kept"]
    assert fresh(lambda: store.load("kept")) == SECRET, "reading is the default tenant's where none is set"


def test_T1_explicit_and_derived_pass_each_to_its_own_tenant(store: CredentialStore) -> None:
    as_tenant("acme", store.save, "db", SECRET)
    assert as_tenant("acme", store.load, "db") == SECRET

    def from_a_thread() -> None:
        thread = threading.Thread(target=tenancy.carried(store.save), args=("db", {"user": "bob"}))
        thread.start()
        thread.join()

    as_tenant("umbrella", from_a_thread)
    assert as_tenant("umbrella", store.load, "db") == {"user": "bob"}
    assert as_tenant("acme", store.load, "db") == SECRET
    assert as_tenant("acme", store.delete, "db") is True
    assert as_tenant("acme", store.delete, "db") is False
    assert as_tenant("acme", store.load, "db") is None
    assert as_tenant("umbrella", store.list) == ["db"]
    assert as_tenant("default", store.list) == []


def test_T1_a_thread_without_a_hand_over_writes_nothing_to_default(store: CredentialStore) -> None:
    refused: list[BaseException] = []

    def bare() -> None:
        try:
            store.save("db", SECRET)
        except TenantContextMissingError as error:
            refused.append(error)

    def work() -> None:
        thread = threading.Thread(target=bare)
        thread.start()
        thread.join()

    as_tenant("acme", work)
    assert len(refused) == 1
    assert as_tenant("default", store.list) == []
    assert as_tenant("acme", store.list) == []


def test_T1_writes_are_counted_at_their_sites(store: CredentialStore) -> None:
    before = tenancy.write_probe_snapshot()
    as_tenant("acme", store.save, "db", SECRET)
    with pytest.raises(TenantContextMissingError):
        fresh(lambda: store.delete("db"))
    after = tenancy.write_probe_snapshot()
    for key in (("credentials.save", "explicit"), ("credentials.delete", "default")):
        assert after.get(key, 0) - before.get(key, 0) == 1


def test_a_later_save_replaces_and_names_may_be_awkward(store: CredentialStore) -> None:
    for name in ("a:b", "x" * 200, "名前"):
        as_tenant("acme", store.save, name, {"n": 1})
        as_tenant("acme", store.save, name, {"n": 2})
        assert as_tenant("acme", store.load, name) == {"n": 2}
    assert as_tenant("acme", store.list) == sorted(["a:b", "x" * 200, "名前"])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("", {}),
        ("a b", {}),
        ("a\nb", {}),
        ("x" * 201, {}),
        ("ok", {"x": float("nan")}),
        ("ok", {"x": "y" * 70_000}),
        ("ok", []),
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_is_written(store: CredentialStore, name: str, values: Any) -> None:
    with pytest.raises(InputError):
        as_tenant("acme", store.save, name, values)
    assert as_tenant("acme", store.list) == []


def test_a_message_never_holds_a_value(store: CredentialStore) -> None:
    with pytest.raises(InputError) as caught:
        as_tenant("acme", store.save, "ok", {"password": "hunter2" * 20_000})
    assert "hunter2" not in str(caught.value)


# -- at rest --------------------------------------------------------------------------------------------


@pytest.fixture
def redis_do(plaita_server_process: Server) -> Iterator[Callable[..., Any]]:
    with SyncRunner(plaita_server_process.url) as runner:

        def do(*words: str | bytes) -> Any:
            call: Call[Any] = Call("test", None, (), words, "writer", False, lambda reply: reply)
            return runner.do(call)

        yield do


def test_at_rest_there_is_no_value_to_read(
    plaita_server_process: Server, prefix: str, redis_do: Callable[..., Any]
) -> None:
    with RedisCredentialStore(plaita_server_process.url, key_prefix=prefix, key=new_key()) as store:
        as_tenant("acme", store.save, "db", SECRET)
    stored = redis_do("HGET", f"{prefix}:acme:credentials", "db")
    for part in ("hunter2", "ann", "密码", "password"):
        assert part.encode() not in stored


def test_a_value_copied_to_another_tenant_or_name_does_not_open(
    plaita_server_process: Server, prefix: str, redis_do: Callable[..., Any]
) -> None:
    with RedisCredentialStore(plaita_server_process.url, key_prefix=prefix, key=new_key()) as store:
        as_tenant("acme", store.save, "db", SECRET)
        stored = redis_do("HGET", f"{prefix}:acme:credentials", "db")
        redis_do("HSET", f"{prefix}:umbrella:credentials", "db", stored)
        redis_do("HSET", f"{prefix}:acme:credentials", "other", stored)
        with pytest.raises(SealError):
            as_tenant("umbrella", store.load, "db")
        with pytest.raises(SealError):
            as_tenant("acme", store.load, "other")


def test_keys_are_replaced_one_after_the_other() -> None:
    old, new = new_key(), new_key()
    sealed = Seal.of(old).close("acme", "db", SECRET)
    both = Seal.of(f"{new}, {old}")
    assert both.open("acme", "db", sealed) == SECRET
    again = both.close("acme", "db", SECRET)
    assert Seal.of(new).open("acme", "db", again) == SECRET
    with pytest.raises(SealError):
        Seal.of(old).open("acme", "db", again)
    with pytest.raises(SealError):
        Seal.of(new).open("acme", "db", sealed)


def test_no_key_and_a_wrong_key_stop_before_anything_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAITA_CREDENTIAL_KEY", raising=False)
    monkeypatch.setenv("PLAITA_CONFIG", "/dev/null")
    with pytest.raises(InputError, match="credential_key"):
        RedisCredentialStore("redis://127.0.0.1:1/0")
    with pytest.raises(InputError) as caught:
        RedisCredentialStore("redis://127.0.0.1:1/0", key="not-a-key")
    assert "not-a-key" not in str(caught.value)


def test_the_key_comes_from_a_file_and_not_from_two_places(
    plaita_server_process: Server, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAITA_CONFIG", "/dev/null")
    monkeypatch.delenv("PLAITA_CREDENTIAL_KEY", raising=False)
    key, file = new_key(), tmp_path / "key"
    file.write_text(key + "\n")
    monkeypatch.setenv("PLAITA_CREDENTIAL_KEY_FILE", str(file))
    with RedisCredentialStore(plaita_server_process.url, key_prefix=prefix) as store:
        as_tenant("acme", store.save, "db", SECRET)
        monkeypatch.setenv("PLAITA_CREDENTIAL_KEY", key)
        with pytest.raises(ConfigError, match="PLAITA_CREDENTIAL_KEY_FILE") as caught:
            RedisCredentialStore(plaita_server_process.url, key_prefix=prefix)
        assert key not in str(caught.value)
        assert as_tenant("acme", store.load, "db") == SECRET

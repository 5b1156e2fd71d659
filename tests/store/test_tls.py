"""TLS: both runners against a server behind it, and what each wrong certificate, port and file is called."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from plaita.errors import InputError
from plaita.store.call import Answer, Unavailable, Value
from plaita.store.endpoint import parse_endpoint
from plaita.store.runner_async import AsyncRunner
from plaita.store.runner_sync import SyncRunner
from plaita.testing.server import Server, raw
from plaita.testing.tls import Authority, TlsFront

Run = Callable[[str], Answer[Any]]
SECRET = "S3cr3t-marker"


def _sync(url: str) -> Answer[Any]:
    with SyncRunner(url, connect_timeout_s=1.5) as runner:
        return runner.run(raw("ECHO", "x" * 300_000))  # more than one TLS record


async def _ask(url: str) -> Answer[Any]:
    runner = AsyncRunner(url, connect_timeout_s=1.5)
    try:
        return await runner.run(raw("ECHO", "x" * 300_000))
    finally:
        await runner.close()


def _asyncio(url: str) -> Answer[Any]:
    return asyncio.run(_ask(url))


def _uvloop(url: str) -> Answer[Any]:
    return uvloop.run(_ask(url))


@pytest.fixture(params=[_sync, _asyncio, _uvloop], ids=["sync", "asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def front(plaita_server: Server, authority: Authority) -> Iterator[TlsFront]:
    made = TlsFront(plaita_server.socket_path, authority.sign("localhost", "127.0.0.1"))
    yield made
    made.close()


@pytest.fixture
def strict(plaita_server: Server, authority: Authority) -> Iterator[TlsFront]:
    """Wants a client certificate."""
    made = TlsFront(plaita_server.socket_path, authority.sign("localhost"), client_ca=authority.cafile)
    yield made
    made.close()


def url(front: TlsFront, server: Server, *options: str, host: str = "localhost") -> str:
    return f"rediss://:{server.password}@{host}:{front.port}/0?{'&'.join(options)}"


def refused(answer: Answer[Any], *words: str) -> None:
    """Said, to be tried again (a certificate can be mended on the server), and no secret in it."""
    assert isinstance(answer, Unavailable), answer
    assert not answer.auth
    for word in ("rediss://localhost:", *words):
        assert word in answer.error
    assert SECRET not in answer.error


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_right_authority(front: TlsFront, plaita_server: Server, authority: Authority, run: Run, host: str) -> None:
    answer = run(url(front, plaita_server, f"ssl_ca_certs={authority.cafile}", host=host))
    assert answer == Value(b"x" * 300_000)


def test_an_unknown_authority(front: TlsFront, plaita_server: Server, tmp_path: Path, run: Run) -> None:
    other = Authority(tmp_path, "another")
    refused(
        run(url(front, plaita_server, f"ssl_ca_certs={other.cafile}")), "certificate is not accepted", "ssl_ca_certs="
    )
    refused(run(url(front, plaita_server)), "certificate is not accepted", "ssl_ca_certs=")  # the system's
    assert isinstance(run(url(front, plaita_server, "ssl_cert_reqs=none")), Value)


def test_another_host_name(front: TlsFront, plaita_server: Server, authority: Authority, run: Run) -> None:
    front.present(authority.sign("redis.example", "127.0.0.2"))
    ca = f"ssl_ca_certs={authority.cafile}"
    refused(run(url(front, plaita_server, ca)), "certificate is not accepted", "'localhost'", "must name the host")
    answer = run(url(front, plaita_server, ca, host="127.0.0.1"))
    assert isinstance(answer, Unavailable)
    assert "IP address mismatch" in answer.error
    assert isinstance(run(url(front, plaita_server, ca, "ssl_check_hostname=false")), Value)


def test_a_certificate_that_has_run_out(front: TlsFront, plaita_server: Server, authority: Authority, run: Run) -> None:
    front.present(authority.sign("localhost", days=-1))
    answer = run(url(front, plaita_server, f"ssl_ca_certs={authority.cafile}"))
    refused(answer, "certificate has expired", "renew it on the server")


def test_a_plain_port_spoken_to_in_tls(plaita_server: Server, run: Run) -> None:
    answer = run(f"rediss://:{SECRET}@localhost:{plaita_server.listen()}")
    assert isinstance(answer, Unavailable)
    assert "no TLS within" in answer.error or "does not speak TLS here" in answer.error
    assert SECRET not in answer.error


def test_a_tls_port_spoken_to_in_plain(front: TlsFront, run: Run) -> None:
    answer = run(f"redis://:{SECRET}@localhost:{front.port}")
    assert isinstance(answer, Unavailable)
    assert "rediss://" in answer.error
    assert SECRET not in answer.error


def test_a_client_certificate(strict: TlsFront, plaita_server: Server, authority: Authority, run: Run) -> None:
    ca, own = f"ssl_ca_certs={authority.cafile}", authority.sign("me", key_password="k&y")
    options = [ca, f"ssl_certfile={own.certfile}", f"ssl_keyfile={own.keyfile}", "ssl_password=k%26y"]
    assert isinstance(run(url(strict, plaita_server, *options)), Value)
    refused(run(url(strict, plaita_server, ca)), "ssl_certfile=")


def test_a_client_certificate_of_somebody_else(
    strict: TlsFront, plaita_server: Server, authority: Authority, tmp_path: Path, run: Run
) -> None:
    own = Authority(tmp_path, "another").sign("me")
    options = [f"ssl_ca_certs={authority.cafile}", f"ssl_certfile={own.certfile}", f"ssl_keyfile={own.keyfile}"]
    refused(run(url(strict, plaita_server, *options)), "ssl_certfile=")


def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    own, locked = authority.sign("me"), authority.sign("me", key_password="right")
    missing = tmp_path / "none"
    for options, words in (
        (f"ssl_ca_certs={missing}", "ssl_ca_certs: "),
        (f"ssl_ca_path={missing}", "ssl_ca_path: "),
        (f"ssl_certfile={missing}", "ssl_certfile: "),
        (f"ssl_certfile={own.certfile}&ssl_keyfile={missing}", "ssl_keyfile: "),
        (f"ssl_ca_certs={own.keyfile}", "no certificate in PEM"),
        (f"ssl_certfile={own.certfile}&ssl_keyfile={locked.keyfile}", "ssl_certfile, ssl_keyfile: "),
        (f"ssl_certfile={locked.certfile}&ssl_keyfile={locked.keyfile}&ssl_password={SECRET}", "wrong ssl_password"),
        (f"ssl_certfile={locked.certfile}&ssl_keyfile={locked.keyfile}", "wrong ssl_password"),
    ):
        with pytest.raises(InputError) as caught:
            parse_endpoint(f"rediss://:{SECRET}@h?{options}")
        assert words in str(caught.value)
        assert SECRET not in str(caught.value)


def test_an_authority_that_is_renewed_in_place_is_read_again(
    front: TlsFront, plaita_server: Server, authority: Authority, tmp_path: Path
) -> None:
    """Without a restart: the file changes, the next connection takes the new one."""
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(Path(authority.cafile).read_bytes())
    with SyncRunner(url(front, plaita_server, f"ssl_ca_certs={trusted}")) as runner:
        assert isinstance(runner.run(raw("PING")), Value)
        new = Authority(tmp_path / "new", "the next authority")
        front.present(new.sign("localhost"))
        front.cut()
        runner.run(raw("PING"))  # finds out that the connection is gone
        assert isinstance(runner.run(raw("PING")), Unavailable)
        renewed = tmp_path / "renewed"
        renewed.write_bytes(Path(new.cafile).read_bytes())
        os.replace(renewed, trusted)
        assert isinstance(runner.run(raw("PING")), Value)
        trusted.unlink()
        front.cut()
        runner.run(raw("PING"))
        answer = runner.run(raw("PING"))
        assert isinstance(answer, Unavailable)
        assert "ssl_ca_certs" in answer.error
        assert "cannot be read" in answer.error

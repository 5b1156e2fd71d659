from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from plaita.errors import FrameError
from plaita.ipc import template_socket as ts


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = ts.socket_pair()
    yield ours, theirs
    ours.close()
    theirs.close()


MESSAGES = [
    ts.Spawn(1, 2, "acme", 512),
    ts.Spawn(1, 2),
    ts.Tick(5),
    ts.Tick(None),
    ts.Adopt(7),
    ts.Forget(7),
    ts.Exit(),
    ts.Importing("m"),
    ts.Ready(1, 2, ["start"], {"m": "why"}),
    ts.Spawned(1, 2, 3),
    ts.SpawnFailed(1, 2, "why"),
    ts.Fatal("why"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_there_and_back(pair: tuple[socket.socket, socket.socket], message: ts.TemplateMessage) -> None:
    count = ts.DESCRIPTORS.get(type(message), 0)
    reading, writing = os.pipe()
    ts.send(pair[0], message, [writing] * count)
    os.close(writing)
    received = ts.receive(pair[1])
    assert received is not None
    assert received[0] == message
    assert len(received[1]) == count
    assert not any(os.get_inheritable(descriptor) for descriptor in received[1])
    ts.close_all(received[1])
    assert os.read(reading, 1) == b""  # every copy is closed
    os.close(reading)


def test_packets_stay_apart_and_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    for message in MESSAGES[2:4]:
        ts.send(pair[0], message)
    assert [ts.receive(pair[1]), ts.receive(pair[1])] == [(ts.Tick(5), []), (ts.Tick(None), [])]
    with pytest.raises(BlockingIOError):
        ts.receive(pair[1])
    pair[0].close()
    assert ts.receive(pair[1]) is None


@pytest.mark.parametrize(
    "packet", [b"x", b"{}", b"[]", b'{"kind":"else"}', b'{"kind":"tick"}', b'{"kind":"tick","kill_at_boot_ms":1,"x":1}']
)
def test_junk_is_refused_and_its_descriptors_closed(pair: tuple[socket.socket, socket.socket], packet: bytes) -> None:
    reading, writing = os.pipe()
    socket.send_fds(pair[0], [packet], [writing])
    os.close(writing)
    with pytest.raises(FrameError):
        ts.receive(pair[1])
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_too_large(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(FrameError, match="limit"):
        ts.send(pair[0], ts.Fatal("x" * 70_000))


def test_a_full_socket_does_not_block(pair: tuple[socket.socket, socket.socket]) -> None:
    def fill() -> None:
        for _ in range(100_000):
            ts.send(pair[0], ts.Tick(1))

    with pytest.raises(BlockingIOError):
        fill()


def test_the_environment_is_an_allow_list() -> None:
    base = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "PLAITA_REDIS_URL": "redis://:secret@host",
        "PLAITA_CONFIG": "/etc/x",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HTTPS_PROXY": "http://user:secret@proxy",
        "WANTED": "1",
        "PLAITA_TREE": "another",
    }
    made = ts.template_environment("mark", base=base, allowed=["WANTED"], extra={"X": "2"})
    assert made == {"PATH": "/bin", "LC_ALL": "C", "WANTED": "1", "X": "2", "PLAITA_TREE": "mark", "SPT_NOENV": "1"}

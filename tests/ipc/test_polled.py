from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from plaita.errors import FrameError
from plaita.ipc.blocking import FrameConnection
from plaita.ipc.frames import Frame, encode
from plaita.ipc.polled import FrameChannel

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Side:
    """A channel and what it has seen."""

    def __init__(self, sock: socket.socket) -> None:
        self.frames: list[Frame] = []
        self.reasons: list[str] = []
        self.news = asyncio.Event()
        self.channel = FrameChannel(asyncio.get_running_loop(), sock, self._frame, self._closed)

    def _frame(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.news.set()

    def _closed(self, reason: str) -> None:
        self.reasons.append(reason)
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.news.clear()
                await self.news.wait()


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    def run_in_loop(test: Callable[[], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(test())  # type: ignore[arg-type]

    return run_in_loop


@pytest.mark.parametrize("size", [0, 65535, 65536, 65537, 1 << 20, 16 << 20])
def test_both_ways_at_once_against_a_blocking_peer(run: Callable[..., None], size: int) -> None:
    frame = Frame({"size": size}, [b"x" * size])

    async def test() -> None:
        ours, theirs = socket.socketpair()
        side = Side(ours)
        peer = FrameConnection(theirs)
        got: list[Frame | None] = []
        # The peer writes everything before it reads anything, as an executor does.
        thread = threading.Thread(target=lambda: (peer.send(frame), peer.send(frame), got.append(peer.receive())))
        thread.start()
        await side.channel.open()
        assert side.channel.send(frame)
        await side.until(lambda: len(side.frames) == 2)
        await asyncio.to_thread(thread.join)
        assert side.frames == [frame, frame]
        assert got == [frame]
        peer.close()
        await side.until(lambda: bool(side.reasons))
        assert side.reasons == ["eof"]
        assert side.channel.closed
        assert not side.channel.send(frame)

    run(test)


def test_frames_sent_before_it_is_open_wait(run: Callable[..., None]) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        side = Side(ours)
        side.channel.send(Frame({"n": 1}))
        side.channel.send(Frame({"n": 2}, [b"x" * 100_000]))
        assert side.channel.unsent() > 100_000
        other = Side(theirs)
        await side.channel.open()
        await other.channel.open()
        await other.until(lambda: len(other.frames) == 2)
        assert [frame.header["n"] for frame in other.frames] == [1, 2]
        side.channel.close()
        side.channel.close()
        await other.until(lambda: bool(other.reasons))
        assert (side.reasons, other.reasons) == (["closed"], ["eof"])
        other.channel.close()
        assert other.reasons == ["eof"]

    run(test)


def test_junk_ends_it_once_and_by_name(run: Callable[..., None]) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        side = Side(ours)
        await side.channel.open()
        theirs.sendall(b"".join(encode(Frame({"n": 1}))) + b"junk that a node wrote")
        await side.until(lambda: bool(side.reasons))
        assert [frame.header for frame in side.frames] in ([], [{"n": 1}])
        assert len(side.reasons) == 1
        assert side.reasons[0].startswith("protocol: ")
        theirs.settimeout(30)
        assert theirs.recv(1) == b""
        theirs.close()

    run(test)


def test_a_callback_that_refuses_a_frame_ends_it(run: Callable[..., None]) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        reasons: list[str] = []
        ended = asyncio.Event()

        def refuse(frame: Frame) -> None:
            raise FrameError("no message of ours")

        def closed(reason: str) -> None:
            reasons.append(reason)
            ended.set()

        channel = FrameChannel(asyncio.get_running_loop(), ours, refuse, closed)
        await channel.open()
        theirs.sendall(b"".join(encode(Frame({}))) * 3)
        async with asyncio.timeout(30):
            await ended.wait()
        assert reasons == ["protocol: no message of ours"]
        theirs.close()

    run(test)


def test_closing_within_a_callback_drops_what_follows(run: Callable[..., None]) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        seen: list[Frame] = []
        ended = asyncio.Event()

        def first(frame: Frame) -> None:
            seen.append(frame)
            channel.close()

        channel = FrameChannel(asyncio.get_running_loop(), ours, first, lambda reason: ended.set())
        await channel.open()
        theirs.sendall(b"".join(encode(Frame({}))) * 3)
        async with asyncio.timeout(30):
            await ended.wait()
        await asyncio.sleep(0)
        assert len(seen) == 1
        theirs.close()

    run(test)


def test_a_stream_that_ends_within_a_frame(run: Callable[..., None]) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        side = Side(ours)
        await side.channel.open()
        theirs.sendall(b"".join(encode(Frame({}, [b"abc"])))[:-1])
        theirs.close()
        await side.until(lambda: bool(side.reasons))
        assert side.reasons == ["eof in a frame"]

    run(test)


def test_a_channel_is_opened_once(run: Callable[..., None]) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        side = Side(ours)
        await side.channel.open()
        with pytest.raises(RuntimeError):
            await side.channel.open()
        side.channel.close()
        theirs.close()

    run(test)


def test_closed_before_it_was_opened(run: Callable[..., None]) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        side = Side(ours)
        side.channel.close()
        assert side.reasons == ["closed"]
        await side.channel.open()
        assert theirs.recv(1) == b""
        assert side.reasons == ["closed"]
        theirs.close()

    run(test)


def test_last_words_are_read_before_the_loop_has_turned(run: Callable[..., None]) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        side = Side(ours)
        await side.channel.open()
        frames = [Frame({"n": n}, [b"x" * 1000]) for n in range(50)]
        for frame in frames:
            theirs.sendall(b"".join(encode(frame)))
        theirs.close()
        side.channel.read_rest()
        assert [frame.header["n"] for frame in side.frames] == list(range(50))
        assert side.reasons == []  # its end is still the transport's to tell
        side.channel.read_rest()
        await side.until(lambda: side.reasons == ["eof"])
        side.channel.read_rest()
        assert len(side.frames) == 50

    run(test)


@pytest.mark.parametrize("ends", ["peer", "closed before", "closed meanwhile"])
def test_a_channel_that_ends_as_it_opens_closes_no_descriptor_but_its_own(run: Callable[..., None], ends: str) -> None:
    """A child that could not be forked: whatever has its number next is another's."""

    async def test() -> None:
        for _ in range(20):
            ours, theirs = socket.socketpair()
            number = ours.fileno()
            side = Side(ours)
            del ours
            opening = asyncio.ensure_future(side.channel.open())
            if ends == "peer":
                theirs.close()
            if ends == "closed before":
                side.channel.close()
            await asyncio.sleep(0)
            if ends == "closed meanwhile":
                side.channel.close()
            others = []
            async with asyncio.timeout(30):
                while number not in others:  # until its own end, and as soon as it may be another's
                    others += os.pipe()
                    await asyncio.sleep(0)
                await opening
            del opening
            side.channel = None  # type: ignore[assignment]
            gc.collect()
            await asyncio.sleep(0.002)
            for other in others:
                os.close(other)  # OSError: somebody else has done so
            theirs.close()
            assert len(side.reasons) == 1

    run(test)

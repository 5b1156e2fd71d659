from __future__ import annotations

import socket
import struct
import threading
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plaita.errors import FrameError
from plaita.ipc import frames
from plaita.ipc.blocking import FrameConnection
from plaita.ipc.frames import Frame, FrameReader, encode

BOUNDARIES = [0, 1, 65535, 65536, 65537, 1 << 20, 16 << 20]


def text_of(frame: Frame) -> bytes:
    return b"".join(encode(frame))


def raw(header: bytes, table: bytes = b"", count: int | None = None, magic: bytes = b"PL", version: int = 1) -> bytes:
    number = len(table) // 4 if count is None else count
    return struct.pack(">2sBBIII", magic, version, 0, len(header), number, crc32(header, crc32(table))) + table + header


headers = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20),
    max_size=5,
)
some_frames = st.lists(st.builds(Frame, headers, st.lists(st.binary(max_size=200), max_size=6)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(some_frames, st.data())
def test_any_split_gives_the_same_frames(given_frames: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(map(text_of, given_frames))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    reader, found = FrameReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:end])
    assert found == given_frames
    assert reader.pending == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_byte_by_byte_and_every_two_piece_split(kind: type) -> None:
    wanted = [Frame({"a": 1}, [b"", b"xyz"]), Frame({}, []), Frame({"b": "é"}, [b"\0" * 40])]
    stream = b"".join(map(text_of, wanted))
    reader, found = FrameReader(), []
    for position in range(len(stream)):
        found += reader.feed(kind(stream[position : position + 1]))
    assert found == wanted
    for cut in range(len(stream) + 1):
        reader = FrameReader()
        assert reader.feed(kind(stream[:cut])) + reader.feed(kind(stream[cut:])) == wanted


def test_time_is_linear_in_small_pieces() -> None:
    """Each piece is looked at once: the buffer is parsed only when it holds what was missing."""
    frame = Frame({}, [bytes(1 << 20)])
    stream = text_of(frame)
    looks = 0

    class Counting(FrameReader):
        def _take(self, source: bytes | bytearray) -> tuple[list[Frame], int]:
            nonlocal looks
            looks += 1
            return super()._take(source)

    reader = Counting()
    found = [one for start in range(0, len(stream), 1000) for one in reader.feed(stream[start : start + 1000])]
    assert found == [frame]
    assert looks <= 4


@pytest.mark.parametrize("size", BOUNDARIES)
def test_sizes_both_ways_at_once_through_a_socket(size: int) -> None:
    ours, theirs = map(FrameConnection, socket.socketpair())
    sent = Frame({"size": size}, [b"x" * size, b"", b"y" * (size // 2)])
    failures: list[BaseException] = []

    def other_side() -> None:
        try:
            writer = threading.Thread(target=theirs.send, args=(sent,))
            writer.start()
            assert theirs.receive() == sent
            writer.join()
        except BaseException as error:
            failures.append(error)

    other = threading.Thread(target=other_side)
    other.start()
    writer = threading.Thread(target=ours.send, args=(sent,))
    writer.start()
    assert ours.receive() == sent
    writer.join(30)
    other.join(30)
    assert not writer.is_alive()
    assert not other.is_alive()
    assert failures == []
    theirs.close()
    assert ours.receive() is None
    ours.close()


def test_many_blobs_in_one_frame() -> None:
    frame = Frame({}, [bytes([index % 256]) * (index % 50) for index in range(frames.BLOB_COUNT_LIMIT)])
    ours, theirs = map(FrameConnection, socket.socketpair())
    writer = threading.Thread(target=ours.send, args=(frame,))
    writer.start()
    assert theirs.receive() == frame
    writer.join()
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello, this is no frame at all", "begin no frame"),
        (b"junk", "begin no frame"),
        (b"P\n", "begin no frame"),
        (b"\0" * 64, "begin no frame"),
        (raw(b"{}", magic=b"PX"), "begin no frame"),
        (raw(b"{}", version=2), "begin no frame"),
        (raw(b"{}")[:3] + b"\1" + raw(b"{}")[4:], "begin no frame"),
        (raw(b"[]"), "not an object"),
        (raw(b"{"), "not JSON"),
        (raw(b"\xff\xfe"), "not JSON"),
        (raw(b"{}")[:-1] + b"]", "checksum"),
        (struct.pack(">2sBBIII", b"PL", 1, 0, frames.HEADER_LIMIT + 1, 0, 0), "header of"),
        (struct.pack(">2sBBIII", b"PL", 1, 0, 2, frames.BLOB_COUNT_LIMIT + 1, 0), "blobs; the limit"),
        (raw(b"{}", struct.pack(">I", frames.BLOB_LIMIT + 1)), "a blob of"),
        (raw(b"{}", struct.pack(">3I", *[frames.BLOB_LIMIT] * 3)), "a frame of"),
    ],
)
@pytest.mark.parametrize("pieces", [1, 7])
def test_what_is_no_frame_is_refused_for_good(data: bytes, reason: str, pieces: int) -> None:
    reader = FrameReader()

    def feed() -> None:
        for start in range(0, len(data), pieces if pieces > 1 else len(data)):
            reader.feed(data[start : start + (pieces if pieces > 1 else len(data))])

    with pytest.raises(FrameError, match=reason):
        feed()
    with pytest.raises(FrameError, match=reason):
        reader.feed(text_of(Frame({})))


def test_a_large_announcement_allocates_nothing() -> None:
    reader = FrameReader()
    reader.feed(raw(b"{}", struct.pack(">I", frames.BLOB_LIMIT)))
    assert reader.pending < 100


@pytest.mark.parametrize(
    "frame",
    [
        Frame({"a": "x" * frames.HEADER_LIMIT}),
        Frame({}, [b""] * (frames.BLOB_COUNT_LIMIT + 1)),
        Frame({}, [bytes(frames.BLOB_LIMIT + 1)]),
        Frame({"a": 2**70}),
        Frame({"a": "\ud800"}),
        Frame({"a": object()}),
    ],
)
def test_a_frame_over_the_limits_is_not_encoded(frame: Frame) -> None:
    with pytest.raises(FrameError):
        encode(frame)


def test_a_stream_cut_within_a_frame() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(text_of(Frame({}, [b"abc"]))[:-1])
    ours.close()
    connection = FrameConnection(theirs)
    with pytest.raises(FrameError, match="within a frame"):
        connection.receive()
    connection.close()

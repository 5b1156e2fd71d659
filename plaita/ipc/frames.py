"""The frame: a small JSON header and any number of byte blobs, on a stream that delivers bytes in any pieces.

Owns the layout and its limits; does no I/O. What arrives may have been written by node code gone wild, so nothing is
allocated before its size is checked, and bytes that are no frame raise FrameError for good: the stream cannot be
trusted after that.

Layout, big-endian: ``magic "PL" | version 1 | 0 | header length u32 | number of blobs u32 | crc32 u32``, the blobs'
lengths (u32 each), the header, the blobs. The checksum covers lengths and header: junk is found before it is obeyed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import orjson

from plaita.errors import FrameError

MAGIC = b"PL"
VERSION = 1
HEADER_LIMIT = 1024 * 1024
BLOB_LIMIT = 96 * 1024 * 1024
BLOB_COUNT_LIMIT = 20_000
TOTAL_LIMIT = 192 * 1024 * 1024
JOIN_LIMIT = 64 * 1024
"""Frames up to this size are joined into one buffer: one copy is cheaper than several writes."""

_PREFIX = struct.Struct(">2sBBIII")
_PREFIX_SIZE = _PREFIX.size


@dataclass(slots=True)
class Frame:
    """``header``: a JSON object with text keys. ``blobs``: bytes in the order the header refers to."""

    header: dict[str, Any]
    blobs: list[bytes] = field(default_factory=list)


def encode(frame: Frame) -> list[bytes]:
    """The frame as buffers to be written one after the other. Raises FrameError for one over the limits."""
    try:
        header = orjson.dumps(frame.header)
    except (TypeError, ValueError) as error:
        raise FrameError(f"the header is no JSON object: {error}") from error
    blobs = frame.blobs
    count = len(blobs)
    lengths = [len(blob) for blob in blobs]
    _check_sizes(len(header), count)
    _check_lengths(len(header), lengths)
    table = struct.pack(f">{count}I", *lengths) if count else b""
    prefix = _PREFIX.pack(MAGIC, VERSION, 0, len(header), count, crc32(header, crc32(table)))
    if sum(lengths) + len(header) <= JOIN_LIMIT:
        return [b"".join((prefix, table, header, *blobs))]
    return [prefix + table + header, *(blob for blob in blobs if blob)]


def _check_sizes(header_length: int, count: int) -> None:
    if header_length > HEADER_LIMIT:
        raise FrameError(f"a header of {header_length} bytes; the limit is {HEADER_LIMIT}")
    if count > BLOB_COUNT_LIMIT:
        raise FrameError(f"{count} blobs; the limit is {BLOB_COUNT_LIMIT}")


def _check_lengths(header_length: int, lengths: list[int] | tuple[int, ...]) -> None:
    if not lengths:
        return
    largest = max(lengths)
    if largest > BLOB_LIMIT:
        raise FrameError(f"a blob of {largest} bytes; the limit is {BLOB_LIMIT}")
    total = sum(lengths) + header_length
    if total > TOTAL_LIMIT:
        raise FrameError(f"a frame of {total} bytes; the limit is {TOTAL_LIMIT}")


class FrameReader:
    """Turns pieces of a byte stream into frames, in time linear in the bytes, whatever the pieces.

    ``feed`` raises FrameError at the first byte that cannot belong to a frame; after that the reader stays broken.
    """

    __slots__ = ("_buffer", "_failed", "_need")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._need = _PREFIX_SIZE  # no look at the buffer is worth anything before it holds so many bytes
        self._failed: str | None = None

    @property
    def pending(self) -> int:
        """Bytes of a frame not complete yet: more than 0 at the end of the stream means it was cut off."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """The frames completed by ``data``, in order; an empty list when none is."""
        if self._failed is not None:
            raise FrameError(self._failed)
        buffer = self._buffer
        source: bytes | bytearray
        if buffer or not isinstance(data, bytes):
            buffer += data
            if len(buffer) < self._need:
                if len(buffer) >= _PREFIX_SIZE or not buffer:
                    return []
                self._guard_start(buffer)
                return []
            source = buffer
        else:
            source = data
        try:
            frames, used = self._take(source)
        except FrameError as error:
            self._failed = str(error)
            buffer.clear()
            raise
        if source is buffer:
            del buffer[:used]
        elif used < len(data):
            buffer += data[used:] if used else data
        return frames

    def _guard_start(self, start: bytes | bytearray) -> None:
        if not MAGIC.startswith(bytes(start[:2])):
            self._failed = f"bytes that begin no frame: {bytes(start[:16])!r}"
            raise FrameError(self._failed)

    def _take(self, source: bytes | bytearray) -> tuple[list[Frame], int]:
        """The complete frames at the start of ``source`` and how many bytes they take; sets what is needed next."""
        frames: list[Frame] = []
        position, end = 0, len(source)
        while True:
            available = end - position
            if available < _PREFIX_SIZE:
                if available:
                    self._guard_start(source[position : position + 2])
                self._need = _PREFIX_SIZE
                return frames, position
            magic, version, zero, header_length, count, checksum = _PREFIX.unpack_from(source, position)
            if magic != MAGIC or version != VERSION or zero != 0:
                raise FrameError(f"bytes that begin no frame: {bytes(source[position : position + 16])!r}")
            _check_sizes(header_length, count)
            head = _PREFIX_SIZE + 4 * count + header_length
            if available < head:
                self._need = head
                return frames, position
            table_start = position + _PREFIX_SIZE
            header_start = table_start + 4 * count
            header = bytes(source[header_start : header_start + header_length])
            if crc32(header, crc32(source[table_start:header_start])) != checksum:
                raise FrameError("a frame whose checksum does not fit")
            lengths = struct.unpack_from(f">{count}I", source, table_start) if count else ()
            _check_lengths(header_length, lengths)
            whole = head + sum(lengths)
            if available < whole:
                self._need = whole
                return frames, position
            frames.append(Frame(_parse_header(header), _cut(source, position + head, lengths)))
            position += whole
            if position == end:
                self._need = _PREFIX_SIZE
                return frames, position


def _cut(source: bytes | bytearray, start: int, lengths: tuple[int, ...]) -> list[bytes]:
    blobs: list[bytes] = []
    with memoryview(source) as view:
        for length in lengths:
            blobs.append(bytes(view[start : start + length]))
            start += length
    return blobs


def _parse_header(header: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(header)
    except ValueError as error:
        raise FrameError(f"a header that is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FrameError(f"a header that is a {type(value).__name__}, not an object")
    return value

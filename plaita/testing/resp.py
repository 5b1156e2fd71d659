"""Where one message of the Redis protocol ends: cuts a byte stream into whole messages, and reads no more of them."""

from __future__ import annotations


def end_of(data: bytes | bytearray, start: int = 0) -> int:
    """The index behind the message at ``start``; -1 while it is not complete. Costs nothing for a long string that has
    not come yet. Raises ValueError for what is no RESP 2."""
    line_end = data.find(b"\r\n", start)
    if line_end < 0:
        return -1
    kind, at = data[start : start + 1], line_end + 2
    if kind in (b"+", b"-", b":"):
        return at
    count = int(data[start + 1 : line_end])
    if kind == b"$":
        end = at if count < 0 else at + count + 2
        return end if end <= len(data) else -1
    if kind != b"*":
        raise ValueError(f"no message of RESP 2: {bytes(data[start : start + 20])!r}")
    for _ in range(count):
        at = end_of(data, at)
        if at < 0:
            return -1
    return at


def words_of(request: bytes | bytearray, most: int = 2) -> list[bytes]:
    """The first words of a request (an array of strings)."""
    words: list[bytes] = []
    at = request.find(b"\r\n") + 2
    while len(words) < most and at < len(request):
        head = request.find(b"\r\n", at)
        size = int(request[at + 1 : head])
        words.append(bytes(request[head + 2 : head + 2 + size]))
        at = head + 2 + size + 2
    return words

"""Asking sentinels for the primary of a service, without I/O: whom next, what to say, what the answers come to.

    search = sentinels.search()
    for place in search:              # the one that answered last comes first
        send questions(...) there, within share_s()
        search.heard(place, answers)  # or search.silent(place, why)
    endpoint = search.primary()       # raises GreetingError with everybody's answer

The search ends with the first sentinel that names a primary. When nobody serves at that place, or a replica does, that
sentinel may be cut off from the others and repeat it for ever: ``misled`` puts it last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from plaita.runtime_config.redis_url import Place
from plaita.store.call import Answer, Argument, Call, Refused, Unavailable, Value, text
from plaita.store.endpoint import Endpoint
from plaita.store.wire import GreetingError

MIN_SHARE_S = 0.25


def share_s(connect_timeout_s: float) -> float:
    """How long one sentinel may take to connect and answer: three of them may be silent in the time of a connection."""
    return max(MIN_SHARE_S, connect_timeout_s / 3)


def questions(endpoint: Endpoint) -> list[Call[Any]]:
    """What to send a sentinel, all at once. A sentinel has users of its own; most have none."""
    commands: list[Sequence[Argument]] = []
    if endpoint.sentinel_username:
        commands.append(("AUTH", endpoint.sentinel_username, endpoint.sentinel_password))
    elif endpoint.sentinel_password:
        commands.append(("AUTH", endpoint.sentinel_password))
    commands.append(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", endpoint.service))
    return [Call("sentinel", None, (), command, "writer", True, lambda reply: reply) for command in commands]


class Sentinels:
    """The sentinels of one endpoint, in the order in which they are asked. Shared by the connections of a runner."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._order = list(endpoint.sentinels)

    def search(self) -> Search:
        return Search(self, self._endpoint)

    @property
    def order(self) -> tuple[Place, ...]:
        return tuple(self._order)

    def answered(self, place: Place) -> None:
        """Ask it first the next time."""
        self._order.sort(key=lambda other: other != place)

    def misled(self, place: Place) -> None:
        """What it said led nowhere: ask it last the next time."""
        self._order.sort(key=lambda other: other == place)


class Search:
    """One round. ``by`` is the sentinel that named the primary."""

    def __init__(self, sentinels: Sentinels, endpoint: Endpoint) -> None:
        self._sentinels = sentinels
        self._endpoint = endpoint
        self._found: Place | None = None
        self._said: list[tuple[Place, str]] = []
        self._refused = 0
        self.by: Place | None = None

    def __iter__(self) -> Iterator[Place]:
        for place in self._sentinels.order:
            if self._found is not None:
                return
            yield place

    def silent(self, place: Place, why: str) -> None:
        """No answer from this one."""
        self._said.append((place, why))

    def heard(self, place: Place, answers: Sequence[Answer[Any]]) -> None:
        for answer in answers:
            if isinstance(answer, Value):
                continue
            error = answer.detail if isinstance(answer, Refused) else answer.error
            self._said.append((place, error))
            self._refused += _refuses_us(answer)
            return
        last = answers[-1]
        assert isinstance(last, Value)
        if last.value is None:
            self._said.append((place, f"knows no service {self._endpoint.service!r}"))
            return
        try:
            host, port = last.value
            self._found = Place(text(host), int(port))
        except (TypeError, ValueError):
            self._said.append((place, "not the answer of a sentinel"))
            return
        self.by = place
        self._sentinels.answered(place)

    def primary(self) -> Endpoint:
        """Raises GreetingError. Only where every sentinel refuses our user or password will waiting not help: a service
        may be made known to them later."""
        if self._found is not None:
            return self._endpoint.at(self._found)
        said = "; ".join(f"{place}: {why}" for place, why in self._said)
        refused = self._refused == len(self._endpoint.sentinels)
        raise GreetingError(Unavailable(f"{self._endpoint.shown}: no sentinel names a primary ({said})", auth=refused))

    def misled(self) -> None:
        """Nobody serves where the primary should be."""
        if self.by is not None:
            self._sentinels.misled(self.by)


def _refuses_us(answer: Answer[Any]) -> bool:
    if isinstance(answer, Unavailable):
        return answer.auth
    # a sentinel without any password answers so to AUTH; a server does as well
    return isinstance(answer, Refused) and "without any password configured" in answer.detail

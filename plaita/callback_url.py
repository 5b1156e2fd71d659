"""Where an HTTP call has to go to end the wait of an ``http_callback`` node, and how it is known to be meant for it
(DECISIONS 30). Pure.

The token of a place is an HMAC of the platform's secret over namespace, tenant, execution, node and visit, in two
steps: the secret makes a key for one execution, and that key the tokens. So an executor, which gets the key only, can
make URLs of the execution it runs and of no other.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import quote, unquote

WORD = "callback"
NO_SECRET = "PLAITA_CALLBACK_SECRET is not set on this host: without it no URL can be made that nobody guesses"
NO_BASE = "PLAITA_CALLBACK_BASE_URL is not set on this host: nobody could call a URL without a server in it"
_LONGEST = 8192


@dataclass(frozen=True, slots=True)
class Place:
    """``prefix`` is the author's ``callback_path``, '' for none."""

    prefix: str
    tenant: str
    execution_id: str
    node_id: str
    visit: int


@dataclass(frozen=True, slots=True)
class CallbackKey:
    """``key``: of one execution, hex. ``base``: what stands before the path, such as ``https://flows.example``."""

    key: str
    base: str = ""

    def url(self, place: Place) -> str:
        """Of a place of this execution."""
        return f"{self.base}{path_of(place, token_of(self.key, place))}"


def execution_key(secret: str, namespace: str, tenant: str, execution_id: str) -> str:
    """What makes the tokens of an execution, hex."""
    return _hmac(secret.encode(), namespace, tenant, execution_id)


def token_of(key: str, place: Place) -> str:
    """64 hex digits."""
    return _hmac(bytes.fromhex(key), place.prefix, place.node_id, str(place.visit))


def is_token(key: str, place: Place, token: str) -> bool:
    """Compared in a time that says nothing."""
    return hmac.compare_digest(token_of(key, place).encode(), token.encode("utf-8", "surrogateescape"))


def path_of(place: Place, token: str) -> str:
    """Ids are encoded: each is one part of the path whatever stands in it."""
    parts = (place.tenant, place.execution_id, place.node_id, str(place.visit), token)
    return "/".join((place.prefix or f"/{WORD}", *(quote(part, safe="") for part in parts)))


def read_path(path: str) -> tuple[Place, str] | None:
    """The place and its token, which is still to be compared; None for a path of no callback."""
    if len(path) > _LONGEST:
        return None
    parts = path.split("/")
    if len(parts) < 7 or parts[0]:
        return None
    prefix = "/".join(parts[:-5])
    tenant, execution_id, node_id, visit, token = (unquote(part) for part in parts[-5:])
    if not (visit.isascii() and visit.isdecimal() and len(visit) < 10) or not (tenant and execution_id and node_id):
        return None
    return Place("" if prefix == f"/{WORD}" else prefix, tenant, execution_id, node_id, int(visit)), token


def name_of(place: Place) -> str:
    """24 hex digits that no other visit of a node of its tenant has."""
    parts = (place.execution_id, place.node_id, str(place.visit))
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode("utf-8")).hexdigest()[:24]


def task_id_of(place: Place) -> str:
    """Of the wait at this place."""
    return f"http_callback_{place.node_id}_{name_of(place)[:12]}"


def _hmac(key: bytes, *parts: str) -> str:
    text = "".join(f"{len(part)}:{part}" for part in parts)  # lengths in front: no two give one text
    return hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()

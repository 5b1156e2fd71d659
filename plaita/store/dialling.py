"""What a connection that did not come about means, in words, and how long each address of a name may take. Pure."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Literal

from plaita.store.call import Unavailable
from plaita.store.endpoint import Endpoint
from plaita.store.wire import GreetingError

Phase = Literal["connect", "tls", "greeting"]
TLS_ALERT = b"\x15\x03"  # how a TLS server answers who does not speak TLS
_OF_OUR_CERTIFICATE = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "HANDSHAKE_FAILURE",
    "UNKNOWN_CA",
    "CERTIFICATE_EXPIRED",
)
_EXPIRED, _HOST_MISMATCH, _IP_MISMATCH = 10, 62, 64  # OpenSSL's X509_V_ERR_...
_UNKNOWN_ISSUER = (18, 19, 20, 21)


class ConnectionLost(Exception):
    """The connection ended or fell silent after something had been sent."""


class NotReached(GreetingError):
    """No server answered; ``reason`` without its name."""

    def __init__(self, endpoint: Endpoint, reason: str) -> None:
        super().__init__(Unavailable(f"{endpoint.shown}: {reason}"))
        self.reason = reason


def telling(earlier: GreetingError | None, later: GreetingError) -> GreetingError:
    """Of two addresses of one host, the failure that says more: what a server said, else the later one."""
    if earlier is not None and isinstance(later, NotReached) and not isinstance(earlier, NotReached):
        return earlier
    return later


def targets(found: Iterable[tuple[Any, ...]]) -> list[tuple[int, Any]]:
    """The addresses of a name, each once: (family, address)."""
    return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))


def share_s(left_s: float, addresses: int) -> float:
    """Of the time left for connecting, what the next of so many addresses may take: the last gets all of it."""
    return max(0.01, left_s / max(1, addresses))


def too_slow(phase: Phase, seconds: float) -> str:
    if phase == "tls":
        return f"connected, but no TLS within {round(seconds, 2):g} s: is it a port for TLS?"
    if phase == "greeting":
        return f"connected, but no answer within {round(seconds, 2):g} s"
    return f"no connection within {round(seconds, 2):g} s"


def reason(endpoint: Endpoint, error: Exception) -> str:
    """Why there is no connection. Never with a secret in it: what the libraries say names files and hosts only."""
    if isinstance(error, ssl.SSLError):
        return _tls_reason(endpoint, error)
    if endpoint.path and isinstance(error, OSError):
        return _unix_reason(error)
    if isinstance(error, socket.gaierror):
        return f"the name {endpoint.host!r} cannot be resolved ({error.strerror})"
    if isinstance(error, OSError):
        return _system(error)
    return str(error)  # a host name that no resolver takes, a TLS file that went


def _unix_reason(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is no such socket"
    if error.errno == errno.EACCES:
        return "permission denied: this user may not use the socket (see the server's unixsocketperm)"
    if error.errno == errno.ECONNREFUSED:
        return "nobody listens on the socket"
    return _system(error)


def _system(error: OSError) -> str:
    # asyncio puts words and the address of its own where the system's belong
    return os.strerror(error.errno) if error.errno else str(error)


def _tls_reason(endpoint: Endpoint, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = ""
        if error.verify_code in _UNKNOWN_ISSUER:
            hint = "; name its authority by ssl_ca_certs=FILE"
        elif error.verify_code in (_HOST_MISMATCH, _IP_MISMATCH):
            hint = "; the certificate must name the host as the url does"
        elif error.verify_code == _EXPIRED:
            hint = "; renew it on the server"
        return f"the certificate is not accepted: {error.verify_message.rstrip('.')}{hint}"
    said = error.reason or str(error)
    if "ALERT" in said:
        if said.endswith(_OF_OUR_CERTIFICATE):
            said = f"{said}; it may want a client certificate: ssl_certfile=, ssl_keyfile="
        return f"the server ended the TLS connection: {said}"
    if said in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNSUPPORTED_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
        return f"the server does not speak TLS here ({said}): a plain port is redis://, not rediss://"
    return f"no TLS: {said}"


def lost_in_greeting(endpoint: Endpoint, words: str) -> str:
    """A TLS server may end a connection that is plain, or has no certificate for it, without a word that arrives."""
    if endpoint.path or not words.startswith("connection lost") or "certificate" in words:
        return words
    if endpoint.tls is None:
        return f"{words} before it answered; a port for TLS does so: try rediss:// then"
    return f"{words} before it answered; a server that wants a client certificate does so: ssl_certfile=, ssl_keyfile="


def no_replies(data: bytes, said: str) -> str:
    """What came was not the Redis protocol."""
    if data.startswith(TLS_ALERT):
        return "the server speaks TLS here: rediss://, not redis://"
    return f"not the replies of a Redis server ({said})"

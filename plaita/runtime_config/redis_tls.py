"""TLS as a Redis URL asks for it: the files it names, read into an SSL context. Reads files, opens no connection."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from plaita.runtime_config.redis_url import TlsOptions


def tls_context(options: TlsOptions) -> ssl.SSLContext:
    """Raises ValueError that names the option and the file that cannot be used."""
    for name, path in _files(options):
        _readable(name, path)
    try:
        context = ssl.create_default_context(cafile=options.ca_certs or None, capath=options.ca_path or None)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ValueError(f"ssl_ca_certs: {options.ca_certs!r} holds no certificate in PEM ({_said(error)})") from None
    if not options.check_hostname:
        context.check_hostname = False
    if not options.verify:
        context.verify_mode = ssl.CERT_NONE
    if options.certfile:
        try:
            # with a function for it OpenSSL never asks on the terminal
            context.load_cert_chain(options.certfile, options.keyfile or None, lambda: options.key_password)
        except (OSError, ValueError) as error:
            files = " and ".join(repr(path) for path in (options.certfile, options.keyfile) if path)
            why = f"no certificate with its key in PEM, or a wrong ssl_password ({_said(error)})"
            raise ValueError(f"ssl_certfile, ssl_keyfile: {files}: {why}") from None
    return context


class Tls:
    """The context of a URL, made again when one of its files has changed: certificates are renewed in place."""

    def __init__(self, options: TlsOptions) -> None:
        """Raises ValueError as ``tls_context``."""
        self.options = options
        self._stamps = self._look()
        self._context = tls_context(options)

    def context(self) -> ssl.SSLContext:
        """Raises ValueError as ``tls_context``."""
        stamps = self._look()
        if stamps != self._stamps:
            self._context = tls_context(self.options)
            self._stamps = stamps
        return self._context

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for _, path in _files(self.options)]


def _files(options: TlsOptions) -> list[tuple[str, str]]:
    named = (
        ("ssl_ca_certs", options.ca_certs),
        ("ssl_ca_path", options.ca_path),
        ("ssl_certfile", options.certfile),
        ("ssl_keyfile", options.keyfile),
    )
    return [(name, path) for name, path in named if path]


def _readable(name: str, path: str) -> None:
    try:
        if name == "ssl_ca_path":
            os.listdir(path)
        else:
            with Path(path).open("rb"):
                pass
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: {path!r} cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _said(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)

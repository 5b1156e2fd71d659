"""TLS for tests: authorities and certificates made on the spot, and a front that ends TLS before a plain server.

The bundled Valkey is built without TLS; the front stands for a server's own ``tls-port``.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_CHUNK = 65536


@dataclass(frozen=True)
class Certificate:
    """Paths of PEM files."""

    certfile: str
    keyfile: str


class Authority:
    """Signs certificates. ``cafile`` is what those who trust it name."""

    def __init__(self, folder: str | os.PathLike[str], name: str = "plaita test authority") -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key, days=1)
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
        self.cafile = str(self._folder / "ca.pem")
        Path(self.cafile).write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, *hosts: str, days: int = 1, key_password: str = "") -> Certificate:
        """For these names and addresses; negative ``days``: it has run out already."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        builder = _builder(name, self._name, key, days=days)
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
        stem = self._folder / f"{len(list(self._folder.iterdir()))}"
        certfile, keyfile = f"{stem}.crt", f"{stem}.key"
        Path(certfile).write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        sealed: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if key_password:
            sealed = serialization.BestAvailableEncryption(key_password.encode())
        Path(keyfile).write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed)
        )
        return Certificate(certfile, keyfile)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class TlsFront:
    """``port`` takes TLS and passes on to ``target``, a unix socket or (host, port). ``client_ca``: clients must have a
    certificate that this authority signed. ``present`` changes the certificate for connections from then on."""

    def __init__(
        self, target: str | tuple[str, int], certificate: Certificate, *, client_ca: str | None = None
    ) -> None:
        self._target = target
        self._client_ca = client_ca
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        self.faults: list[str] = []
        self.present(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="tls front", daemon=True)
        self._thread.start()

    def present(self, certificate: Certificate) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certfile, certificate.keyfile)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        self._context = context

    def cut(self) -> None:
        """End every connection; new ones pass."""
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(30)
        try:
            wrapped = self._context.wrap_socket(client, server_side=True)
        except OSError as error:
            self.faults.append(str(error))
            client.close()
            return
        wrapped.settimeout(None)
        with contextlib.suppress(OSError), _connect(self._target) as upstream, wrapped:
            with self._lock:
                self._ends += [upstream]
            back = threading.Thread(target=_pump, args=(upstream, wrapped), daemon=True)
            back.start()
            _pump(wrapped, upstream)
            back.join(5)


def _connect(target: str | tuple[str, int]) -> socket.socket:
    if isinstance(target, tuple):
        return socket.create_connection(target, timeout=None)
    upstream = socket.socket(socket.AF_UNIX)
    upstream.connect(target)
    return upstream


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

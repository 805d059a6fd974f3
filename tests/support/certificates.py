"""Certificates for tests: an authority, one below it, and a server's, valid for this machine's loopback addresses."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class CertificateFiles:
    """Paths: of the authority's certificate, of the server's with the one between, and of the server's key."""

    authority: pathlib.Path
    chain: pathlib.Path
    key: pathlib.Path


def write_certificates(folder: pathlib.Path, name: str = "localhost", *, password: str = "") -> CertificateFiles:
    """Make an authority and a server's certificate of a name, and write them."""
    folder.mkdir(exist_ok=True)
    root_key, middle_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    root = _certificate("root", root_key, "root", root_key, is_authority=True)
    middle = _certificate("middle", middle_key, "root", root_key, is_authority=True)
    server = _certificate(name, server_key, "middle", middle_key, is_authority=False)
    files = CertificateFiles(folder / "root.pem", folder / "chain.pem", folder / "key.pem")
    encoding = serialization.Encoding.PEM
    files.authority.write_bytes(root.public_bytes(encoding))
    files.chain.write_bytes(server.public_bytes(encoding) + middle.public_bytes(encoding))
    secret: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        secret = serialization.BestAvailableEncryption(password.encode())
    files.key.write_bytes(server_key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, secret))
    files.key.chmod(0o600)
    return files


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if not is_authority:
        names = [x509.DNSName(name), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())

"""Certificates for the tests of TLS: an authority's, and a server's and a client's that it signed."""

import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tenure_conformance.servers import HOST


@contextmanager
def certificates():
    """A directory with an authority's certificate, and a server's and a client's that it signed."""
    now = datetime.now(UTC)

    def named(name):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def signed(name, key, issuer, issuer_key, *, authority):
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(HOST))])
        usage = dict.fromkeys(
            (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ),
            False,
        )
        usage |= {"digital_signature": not authority, "key_cert_sign": authority, "crl_sign": authority}
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        )
        if not authority:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(issuer_key, hashes.SHA256())

    def written(directory, name, certificate, key):
        (directory / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (directory / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    with tempfile.TemporaryDirectory(prefix="tenure-tls-") as place:
        directory = Path(place)
        authority = ec.generate_private_key(ec.SECP256R1())
        written(directory, "ca", signed("ca", authority, "ca", authority, authority=True), authority)
        for name in ("server", "client"):
            key = ec.generate_private_key(ec.SECP256R1())
            written(directory, name, signed(name, key, "ca", authority, authority=False), key)
        yield directory

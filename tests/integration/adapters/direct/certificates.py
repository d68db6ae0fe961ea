"""Certificates for tests: an authority, and one that it signs."""

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


class Authority:
    """Signs certificates, and writes all files into one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.authority.pem"
        self.file.write_bytes(_pem(self._sign(name, self._key, is_authority=True, ended=False)))

    def files(self, name: str = "node", *, ended: bool = False) -> dict[str, str]:
        """Return the value of `LINK_TLS` for a process; `ended`: its certificate is too old."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate_file = self._folder / f"{self._name}.{name}.pem"
        key_file = self._folder / f"{self._name}.{name}.key"
        certificate_file.write_bytes(_pem(self._sign(name, key, is_authority=False, ended=ended)))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return {"certificate": str(certificate_file), "key": str(key_file), "authority": str(self.file)}

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool, ended: bool
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now - DAY if ended else now + DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)

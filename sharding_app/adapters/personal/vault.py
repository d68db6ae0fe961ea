"""The ciphers of personal data. Pure, but for random bytes.

    secret of the settings --wraps--> key of a subject --seals--> values
                           --wraps--> the index key, which makes marks of subjects' ids

A ciphertext names its key, and is bound to its place: what it belongs to, and which of the
document's values it is. One that was copied to another place does not open. A mark finds the row of
a subject, and does not tell whose it is without the index key.

All of it is AES-256-GCM with random nonces; a key seals far fewer values than the 2**32 that this
allows.
"""

import hashlib
import hmac
import os
from collections.abc import Sequence

INDEX = bytes(16)
"""The id of the row that holds the index key."""
KEY_BYTES = 32
ID_BYTES = 16
_NONCE_BYTES = 12
_NAME_BYTES = 4
_VERSION = b"\x01"


class KeyUnreadable(Exception):
    """A key was wrapped with a secret that is not in PERSONAL_KEYS."""


class CannotOpen(Exception):
    """A ciphertext was made for another place, or changed since."""


class Vault:
    def __init__(self, secrets: Sequence[bytes]) -> None:
        """The first secret wraps new keys, all of them unwrap. Raises ImportError without the
        package cryptography.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # an extra

        self._cipher = AESGCM
        self._wrapping = {_name(each): AESGCM(_derived(each)) for each in reversed(secrets)}
        self._first = _name(secrets[0])

    def new_key(self, row: bytes) -> bytes:
        """Make a key and return it wrapped, for the row of that id."""
        return self._wrapped(os.urandom(KEY_BYTES), row)

    def rewrapped(self, wrapped: bytes, row: bytes) -> bytes:
        """Return the same key, wrapped by the first secret. Raises KeyUnreadable."""
        return self._wrapped(self.unwrap(wrapped, row), row)

    def unwrap(self, wrapped: bytes, row: bytes) -> bytes:
        """Return the key. Raises KeyUnreadable."""
        from cryptography.exceptions import InvalidTag

        cipher = self._wrapping.get(wrapped[1 : 1 + _NAME_BYTES])
        if cipher is None or wrapped[:1] != _VERSION:
            raise KeyUnreadable
        nonce, data = _parted(wrapped[1 + _NAME_BYTES :])
        try:
            return cipher.decrypt(nonce, data, b"key" + row)
        except InvalidTag:
            raise KeyUnreadable from None

    def _wrapped(self, key: bytes, row: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        wrapped = self._wrapping[self._first].encrypt(nonce, key, b"key" + row)
        return b"".join((_VERSION, self._first, nonce, wrapped))

    def seal(self, key: bytes, row: bytes, data: bytes, place: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return b"".join((_VERSION, row, nonce, self._cipher(key).encrypt(nonce, data, place)))

    def open(self, key: bytes, sealed: bytes, place: bytes) -> bytes:
        """Return the data. Raises CannotOpen."""
        from cryptography.exceptions import InvalidTag

        nonce, data = _parted(sealed[1 + ID_BYTES :])
        try:
            return self._cipher(key).decrypt(nonce, data, place)
        except (InvalidTag, ValueError):
            raise CannotOpen from None


def names_of(secrets: Sequence[bytes]) -> list[bytes]:
    """Return the names that keys bear which these secrets have wrapped."""
    return [_name(each) for each in secrets]


def row_of(sealed: bytes) -> bytes:
    """Return the id of the row that holds the key of a ciphertext."""
    return sealed[1 : 1 + ID_BYTES]


def mark_of(index: bytes, subject: str) -> bytes:
    """Return the mark by which a subject's row is found."""
    return hmac.digest(index, subject.encode(), "sha256")


def new_row() -> bytes:
    return os.urandom(ID_BYTES)


def _parted(data: bytes) -> tuple[bytes, bytes]:
    return data[:_NONCE_BYTES], data[_NONCE_BYTES:]


def _name(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=_NAME_BYTES, person=b"personal-name").digest()


def _derived(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=KEY_BYTES, person=b"personal-wrap").digest()

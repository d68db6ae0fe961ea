"""Keys for frames: a process without one can neither write a frame that we accept nor, with
encryption, read one.

    byte 0        1: authenticated (keyed BLAKE2b), 2: also encrypted (ChaCha20-Poly1305)
    bytes 1-4     which key
    1:            32 bytes of MAC over the first five bytes and the frame, then the frame
    2:            16 bytes that name the writing process, 8 bytes of counter, then the encrypted
                  frame and its tag

The frame itself names its source, its target, its stream and its number. So a recorded frame that
is played again is a repetition to the link, the link refuses a frame of an earlier stream, and
`Links` refuses a frame for another incarnation.

Encryption uses a key of its own for each writing process, made from the shared key and 16 random
bytes, and counts its nonces: no nonce is ever used twice with one key, however long the shared key
lives.

Rotation: the first key writes, all keys read. So: [old, new] everywhere, then [new, old]
everywhere, then [new].
"""

import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sharding_app.ports.sealing import SealBroken

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

AUTHENTICATED = 1
ENCRYPTED = 2
MIN_KEY_BYTES = 16
_ID_BYTES, _MAC_BYTES, _SALT_BYTES, _COUNTER_BYTES, _TAG_BYTES = 4, 32, 16, 8, 16
_HEAD_BYTES = 1 + _ID_BYTES
_MAX_PEERS = 4096


class _Key:
    """Values derived from one secret: its name, the MAC's key, and the keys of writing
    processes.
    """

    def __init__(self, secret: bytes) -> None:
        self.id = hashlib.blake2b(secret, digest_size=_ID_BYTES, person=b"sharding-id").digest()
        self._mac = hashlib.blake2b(key=_derived(secret, b"sharding-mac"), digest_size=_MAC_BYTES)
        self._cipher_secret = _derived(secret, b"sharding-cipher")

    def mac(self, head: bytes, data: bytes) -> bytes:
        state = self._mac.copy()
        state.update(head)
        state.update(data)
        return state.digest()

    def cipher(self, salt: bytes) -> "ChaCha20Poly1305":
        from cryptography.hazmat.primitives.ciphers.aead import (
            ChaCha20Poly1305,
        )  # an extra, loaded when asked for

        return ChaCha20Poly1305(hashlib.blake2b(salt, key=self._cipher_secret, digest_size=32).digest())


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=32, person=purpose).digest()


class Sealer:
    """Seals and opens frames. The first key seals, all keys open."""

    def __init__(self, keys: Sequence[bytes], *, encrypt: bool = False) -> None:
        if not keys:
            raise ValueError("at least one key is needed")
        if min(map(len, keys)) < MIN_KEY_BYTES:
            raise ValueError(f"a key must have at least {MIN_KEY_BYTES} bytes")
        made = [_Key(key) for key in keys]
        self._first = made[0]
        self._keys = {key.id: key for key in reversed(made)}
        self._encrypt = encrypt
        self._pid = 0
        self._salt = b""
        self._counter = 0
        self._peers: OrderedDict[bytes, ChaCha20Poly1305] = OrderedDict()
        if encrypt:
            try:
                self._renew()
            except ImportError as error:
                raise ValueError("encryption needs the package `cryptography`") from error

    def _renew(self) -> None:
        """Become a new writing process: at first, and in a forked child, where the counter would
        repeat.
        """
        self._pid = os.getpid()
        self._salt = os.urandom(_SALT_BYTES)
        self._counter = 0
        self._own = self._first.cipher(self._salt)

    def seal(self, data: bytes) -> bytes:
        """Return the sealed frame."""
        if not self._encrypt:
            head = b"\x01" + self._first.id
            return b"".join((head, self._first.mac(head, data), data))
        if os.getpid() != self._pid:
            self._renew()
        self._counter += 1
        counter = self._counter.to_bytes(_COUNTER_BYTES, "big")
        head = b"".join((b"\x02", self._first.id, self._salt))
        return b"".join((head, counter, self._own.encrypt(b"\0\0\0\0" + counter, data, head)))

    def open(self, sealed: bytes) -> bytes:
        """Return the frame. Raises SealBroken."""
        key = self._keys.get(sealed[1:_HEAD_BYTES])
        if key is None:
            raise SealBroken("sealed with none of our keys")
        if sealed[0] == AUTHENTICATED:
            data = sealed[_HEAD_BYTES + _MAC_BYTES :]
            mac = sealed[_HEAD_BYTES : _HEAD_BYTES + _MAC_BYTES]
            if hmac.compare_digest(mac, key.mac(sealed[:_HEAD_BYTES], data)):
                return data
            raise SealBroken("the seal does not fit the frame")
        if sealed[0] == ENCRYPTED:
            return self._decrypt(key, sealed)
        raise SealBroken("an unknown kind of seal")

    def _decrypt(self, key: _Key, sealed: bytes) -> bytes:
        start = _HEAD_BYTES + _SALT_BYTES
        body = start + _COUNTER_BYTES
        if len(sealed) < body + _TAG_BYTES:
            raise SealBroken("too short")
        head, counter = sealed[:start], sealed[start:body]
        cipher = self._peers.get(head)
        known = cipher is not None
        if cipher is None:
            try:
                cipher = key.cipher(head[_HEAD_BYTES:])
            except ImportError:
                raise SealBroken("encrypted, and the package `cryptography` is not there") from None
        from cryptography.exceptions import InvalidTag

        try:
            data = cipher.decrypt(b"\0\0\0\0" + counter, sealed[body:], head)
        except InvalidTag:
            raise SealBroken("the seal does not fit the frame") from None
        if not known:
            # Only frames sealed by a holder of the key add an entry, so that strangers cannot fill
            # this.
            self._peers[head] = cipher
            if len(self._peers) > _MAX_PEERS:
                self._peers.popitem(last=False)
        return data

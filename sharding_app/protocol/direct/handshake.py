"""The proof of two processes that they know one of the cluster's keys, before either reads a frame.

    dialer                                                  acceptor
      hello     versions, nonce, key, its channel, the peer's  ─►
           ◄─   greeting   version, nonce, key
      proof     MAC("dialer", hello, greeting)                 ─►  knows the dialer now
           ◄─   welcome    MAC("acceptor", hello, greeting)
    knows the acceptor now

Contract. Both MACs cover both nonces, the version, both keys' names and both channels, which carry
the cluster's id and the incarnations. Each MAC names the role of its writer. So a recorded
handshake proves nothing in another one, a proof that is sent back to its writer is of the wrong
role, and a proof for one process does not serve another. A process of another cluster is refused,
whatever keys it knows. The dialer proves first: a process that a stranger reaches gives away no MAC
that a weak key could be searched with.

Rotation is the seal's: each side proves with its first key, and takes any of its keys from the
other. Without keys nothing is proven, and both sides know it: a process with keys refuses one
without keys, and the other way round.

The layout is fixed, and no message is longer than `MAX_HANDSHAKE_BYTES`. Nonces come from the
caller, which counts the time too.
"""

import hashlib
import hmac
import struct
from collections.abc import Sequence
from enum import IntEnum

VERSIONS = (1, 1)
"""The lowest and the highest version of this exchange that this release speaks."""
NONCE_BYTES = 32
MAX_CHANNEL_BYTES = 255
MAX_HANDSHAKE_BYTES = 1024
_MAGIC = b"shrd"
_NO_KEY = b"\0\0\0\0"
_MAC_BYTES, _ID_BYTES = 32, 4
_HELLO = struct.Struct(f"<4sBB{NONCE_BYTES}s{_ID_BYTES}sBB")
_GREETING = struct.Struct(f"<B{NONCE_BYTES}s{_ID_BYTES}s")
_LENGTHS = struct.Struct("<HH")


class Why(IntEnum):
    """Why a handshake ends without a proof, as it is said to the peer."""

    UNREADABLE = 1
    VERSION = 2
    ELSEWHERE = 3
    "Another process listens here than the one that is asked for."
    NO_KEYS = 4
    "One side has keys, and the other none."
    KEY = 5
    PROOF = 6
    FULL = 7
    CLUSTER = 8


_SAID = {
    Why.UNREADABLE: "it sent no handshake",
    Why.VERSION: "it speaks another version of the handshake",
    Why.ELSEWHERE: "another process listens there now",
    Why.NO_KEYS: "one of the two has keys, and the other has none",
    Why.KEY: "its key is none of those that are known to the other",
    Why.PROOF: "its proof does not fit",
    Why.FULL: "it has as many connections as it takes",
    Why.CLUSTER: "the two are of different clusters",
}


class HandshakeFailed(Exception):
    """The other side has proven nothing, and nothing more is read from it."""

    def __init__(self, why: Why) -> None:
        super().__init__(_SAID[why])
        self.why = why


def refusal(body: bytes) -> Why:
    """Read why the other side ended the handshake."""
    try:
        return Why(body[0])
    except (IndexError, ValueError):
        return Why.UNREADABLE


class HandshakeKeys:
    """What is made from the cluster's keys to prove that they are known; of no keys too."""

    def __init__(self, secrets: Sequence[bytes] = ()) -> None:
        made = [(_id(each), _derived(each)) for each in secrets]
        self.first = made[0][0] if made else _NO_KEY
        self._keys = dict(reversed(made))

    def check(self, theirs: bytes) -> None:
        """Raise HandshakeFailed unless a proof with that key could be checked."""
        if (theirs == _NO_KEY) != (self.first == _NO_KEY):
            raise HandshakeFailed(Why.NO_KEYS)
        if theirs != _NO_KEY and theirs not in self._keys:
            raise HandshakeFailed(Why.KEY)

    def proof(self, key: bytes, role: bytes, hello: bytes, greeting: bytes) -> bytes:
        """Return the MAC with that key; without keys, zeros."""
        if key == _NO_KEY:
            return bytes(_MAC_BYTES)
        mac = hashlib.blake2b(key=self._keys[key], digest_size=_MAC_BYTES, person=role)
        mac.update(_LENGTHS.pack(len(hello), len(greeting)))
        mac.update(hello)
        mac.update(greeting)
        return mac.digest()


def _id(secret: bytes) -> bytes:
    """Name a key; never with the name of no key."""
    digest = hashlib.blake2b(secret, digest_size=_ID_BYTES, person=b"sharding-dial-id").digest()
    return bytes((digest[0] | 1,)) + digest[1:]


def _derived(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=32, person=b"sharding-dial").digest()


def _cluster(channel: bytes) -> bytes:
    """Return the part of a channel's name that all processes of a cluster share."""
    return channel.rpartition(b".")[0]


_DIALER, _ACCEPTOR = b"dialer", b"acceptor"


class Dialing:
    """The side that has opened the connection."""

    def __init__(
        self, keys: HandshakeKeys, me: str, peer: str, nonce: bytes, versions: tuple[int, int] = VERSIONS
    ) -> None:
        self.peer = peer
        self.proven = False
        self._keys = keys
        self._versions = versions
        self._greeting = b""
        mine, theirs = me.encode(), peer.encode()
        if max(len(mine), len(theirs)) > MAX_CHANNEL_BYTES or len(nonce) != NONCE_BYTES:
            raise ValueError("a channel's name or the nonce has the wrong length")
        head = _HELLO.pack(_MAGIC, *versions, nonce, keys.first, len(mine), len(theirs))
        self.hello = head + mine + theirs
        "What has to be sent first."

    def receive(self, body: bytes) -> bytes:
        """Take a message of the handshake; return the answer to it, if there is one.

        Raises HandshakeFailed.
        """
        if self.proven:
            raise HandshakeFailed(Why.UNREADABLE)
        if not self._greeting:
            if len(body) != _GREETING.size:
                raise HandshakeFailed(Why.UNREADABLE)
            version, _, self._their_key = _GREETING.unpack(body)
            if not self._versions[0] <= version <= self._versions[1]:
                raise HandshakeFailed(Why.VERSION)
            self._keys.check(self._their_key)
            self._greeting = body
            return self._keys.proof(self._keys.first, _DIALER, self.hello, body)
        expected = self._keys.proof(self._their_key, _ACCEPTOR, self.hello, self._greeting)
        if not hmac.compare_digest(body, expected):
            raise HandshakeFailed(Why.PROOF)
        self.proven = True
        return b""


class Accepting:
    """The side that was called."""

    def __init__(
        self, keys: HandshakeKeys, me: str, nonce: bytes, versions: tuple[int, int] = VERSIONS
    ) -> None:
        if len(nonce) != NONCE_BYTES:
            raise ValueError("the nonce has the wrong length")
        self.peer = ""
        "Who says that it calls; true once it is proven."
        self.proven = False
        self._keys = keys
        self._me = me.encode()
        self._nonce = nonce
        self._versions = versions
        self._hello = self._greeting = b""

    def receive(self, body: bytes) -> bytes:
        """Take a message of the handshake; return the answer to it. Raises HandshakeFailed."""
        if self.proven:
            raise HandshakeFailed(Why.UNREADABLE)
        if not self._hello:
            return self._greet(body)
        expected = self._keys.proof(self._their_key, _DIALER, self._hello, self._greeting)
        if not hmac.compare_digest(body, expected):
            raise HandshakeFailed(Why.PROOF)
        self.proven = True
        return self._keys.proof(self._keys.first, _ACCEPTOR, self._hello, self._greeting)

    def _greet(self, hello: bytes) -> bytes:
        if len(hello) < _HELLO.size:
            raise HandshakeFailed(Why.UNREADABLE)
        magic, low, high, _, self._their_key, theirs, mine = _HELLO.unpack_from(hello)
        names = hello[_HELLO.size :]
        if magic != _MAGIC or len(names) != theirs + mine or not names.isascii() or not theirs:
            raise HandshakeFailed(Why.UNREADABLE)
        version = min(high, self._versions[1])
        if version < max(low, self._versions[0]):
            raise HandshakeFailed(Why.VERSION)
        if names[theirs:] != self._me:
            raise HandshakeFailed(Why.ELSEWHERE)
        if _cluster(names[:theirs]) != _cluster(self._me):
            raise HandshakeFailed(Why.CLUSTER)
        self._keys.check(self._their_key)
        self.peer = names[:theirs].decode()
        self._hello = hello
        self._greeting = _GREETING.pack(version, self._nonce, self._keys.first)
        return self._greeting

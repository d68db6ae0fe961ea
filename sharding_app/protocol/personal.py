"""Personal data inside stored documents: how it is found, and how it is replaced.

A `Personal` value is a *token* wherever it is encoded: of the kind "personal" with the subject and
the value in plain, "sealed" with a ciphertext, or "erased" with nothing. Codecs write the first
kind. What goes to the database is sealed on its way, and opened on its way back, by changing the
tokens alone: every other byte of a document stays.

* In JSON a token is a text that begins with an escaped question mark. No encoder here writes that
  escape, and a user's text cannot contain an unescaped quotation mark, so no user's value can be
  mistaken for a token.
* In MessagePack it is an extension of the type `EXTENSION`.
"""

import itertools
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from operator import contains
from typing import NamedTuple

import msgspec

EXTENSION = 80
PERSONAL, SEALED, ERASED, BROKEN = "personal", "sealed", "erased", "broken"
_JSON_MARK = b'"\\u003f'
_JSON_TOKEN = re.compile(rb'"\\u003f(personal|sealed|erased|broken):([A-Za-z0-9_-]*)"')
_TEXT_TOKEN = re.compile(r"\?(personal|sealed|erased|broken):([A-Za-z0-9_-]*)")
_PACKED_MARK = b"?sharding:"


class Token(NamedTuple):
    kind: str
    data: bytes = b""


class Plain(NamedTuple):
    """The data of a token of the kind `PERSONAL`."""

    subject: str
    "Empty: the value is older than the annotation, and belongs to no known subject."
    value: bytes
    "MessagePack."


Change = Callable[[int, Token], Token]
"""Gives the token that takes the place of another; its number in the document comes first."""

ERASED_TOKEN = Token(ERASED)
_plain = msgspec.msgpack.Decoder(tuple[str, bytes]).decode
_pack = msgspec.msgpack.Encoder().encode


def plain_token(plain: Plain) -> Token:
    return Token(PERSONAL, _pack(plain))


def plain_of(token: Token) -> Plain:
    """Return what a token of the kind `PERSONAL` holds."""
    return Plain(*_plain(token.data))


def in_json(token: Token) -> bytes:
    """Return the token as JSON."""
    return b"%s%s:%s" % (_JSON_MARK, token.kind.encode(), _base64(token.data) + b'"')


def in_msgpack(token: Token) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(EXTENSION, b"%s%s:%s" % (_PACKED_MARK, token.kind.encode(), token.data))


def token_of(value: object) -> Token | None:
    """Return the token that a decoded value stands for; None: it is none."""
    if isinstance(value, str):
        found = _TEXT_TOKEN.fullmatch(value)
        return None if found is None else Token(found[1], _bytes(found[2].encode()))
    if isinstance(value, msgspec.msgpack.Ext) and value.code == EXTENSION:
        return _token(bytes(value.data))
    return None


def in_any_json(documents: Iterable[bytes]) -> bool:
    """Tell whether any of these JSON documents has a token."""
    return any(map(contains, documents, itertools.repeat(_JSON_MARK)))


def in_any_packed(documents: Iterable[bytes]) -> bool:
    """Tell whether any of these MessagePack documents may have a token."""
    return any(map(contains, documents, itertools.repeat(_PACKED_MARK)))


def rewritten(document: bytes, change: Change) -> bytes:
    """Return a JSON document with other tokens. One without tokens is returned as it is."""
    return replaced(document, lambda number, token: in_json(change(number, token)))


def replaced(document: bytes, show: Callable[[int, Token], bytes]) -> bytes:
    """Return a JSON document with other JSON in the place of its tokens."""
    if _JSON_MARK not in document:
        return document
    count = itertools.count()

    def written(found: re.Match[bytes]) -> bytes:
        return show(next(count), Token(found[1].decode(), _bytes(found[2])))

    return _JSON_TOKEN.sub(written, document)


def repacked(document: bytes, change: Change) -> bytes:
    """Return a MessagePack document with other tokens. One without tokens is returned as it is."""
    if _PACKED_MARK not in document:
        return document
    return _pack(unpacked(document, lambda number, token: in_msgpack(change(number, token))))


def unpacked(document: bytes, show: Callable[[int, Token], object]) -> object:
    """Decode a MessagePack document, with other values in the place of its tokens."""
    count = itertools.count()

    def extension(code: int, data: memoryview) -> object:
        token = _token(bytes(data)) if code == EXTENSION else None
        if token is None:
            return msgspec.msgpack.Ext(code, bytes(data))
        return show(next(count), token)

    return msgspec.msgpack.decode(document, ext_hook=extension)


def _token(data: bytes) -> Token | None:
    if not data.startswith(_PACKED_MARK):
        return None
    kind, _, rest = data.removeprefix(_PACKED_MARK).partition(b":")
    return Token(kind.decode("ascii", "replace"), rest)


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _bytes(text: bytes) -> bytes:
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))

"""Documents as JSON for the person whom they are about: that person's values in plain, and marks in
the place of all others.
"""

from typing import Any

import msgspec

from sharding_app.adapters.personal.sealing import Document, SubjectKey, value_place
from sharding_app.adapters.personal.vault import CannotOpen, Vault, row_of
from sharding_app.protocol.personal import ERASED, PERSONAL, SEALED, Token, plain_of, replaced, unpacked

ANOTHER, NO_ONE, GONE, UNREADABLE = "(another person)", "(no known person)", "(erased)", "(unreadable)"
"""In the place of values that are not this person's, or cannot be shown."""

_json = msgspec.json.Encoder(enc_hook=repr).encode


class Revealing:
    """Reveals the values of one person. `key`: None where the person has none, so no value."""

    def __init__(self, vault: Vault, key: SubjectKey | None) -> None:
        self._vault = vault
        self._key = key
        self.values = 0
        "Values that were shown so far."

    def document(self, document: Document, *, own: bool) -> bytes:
        """Return it as JSON. `own`: it is of the person's own entity, and so is a value in it that
        was stored before its field was personal.
        """

        def show(number: int, token: Token) -> Any:
            return self._value(token, value_place(document.place, number), own=own)

        if document.is_packed:
            return _json(unpacked(document.data, show))
        return replaced(document.data, lambda number, token: _json(show(number, token)))

    def _value(self, token: Token, place: bytes, *, own: bool) -> Any:
        if token.kind == SEALED:
            if self._key is None or self._key.key is None or row_of(token.data) != self._key.row:
                return ANOTHER
            try:
                plain = self._vault.open(self._key.key, token.data, place)
            except CannotOpen:
                return UNREADABLE
            return self._shown(Token(PERSONAL, plain))
        if token.kind == PERSONAL:
            return self._shown(token) if own else NO_ONE
        return GONE if token.kind == ERASED else UNREADABLE

    def _shown(self, token: Token) -> Any:
        self.values += 1
        return msgspec.msgpack.decode(plain_of(token).value)

"""`Topic`: what an element of a page shows, and its token.

A token is signed with the site's ``SECRET_KEY``. So a browser can watch only what the site has
given to it or to another browser: it can invent neither ids nor arguments nor templates. Who may
watch is another question (`rights`).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from django.core import signing

from sharding_app.entities.handler import Handler
from sharding_app.entities.refs import BoundRef
from sharding_app.entities.registry import registry
from sharding_app.errors import InvalidCall

SALT = "sharding_app.live"
MAX_TOKEN = 4096
KEY_LENGTH = 16
"""Characters of the signature (96 bits) that name a topic in messages."""


class Unknown(Exception):
    """A token that this site has not signed, or whose view is not there any more."""


class Source(NamedTuple):
    """A view of an entity with its arguments, which are encoded."""

    type_name: str
    entity: str
    view: str
    args: bytes


class Topic(NamedTuple):
    """A source, and how it is shown: as its value, or by a template in a language."""

    source: Source
    template: str = ""
    language: str = ""

    @property
    def token(self) -> str:
        """The same topic has the same token, on each process of the site."""
        source = self.source
        args = base64.b64encode(source.args).decode()
        parts = [source.type_name, source.entity, source.view, args, self.template, self.language]
        return signing.Signer(salt=SALT).sign_object(parts)

    @property
    def handler(self) -> Handler:
        """The view as this process declares it, or raise `Unknown`."""
        try:
            found = registry.get(self.source.type_name).commands.get(self.source.view)
        except InvalidCall as error:
            raise Unknown(str(error)) from error
        if found is None or not found.is_view:
            raise Unknown(f"{self.source.type_name} has no view {self.source.view!r}")
        return found


def topic_of(
    ref: Any, view: str, args: tuple[Any, ...] = (), template: str = "", language: str = ""
) -> Topic:
    """Return the topic of a view of the entity that `ref` is the address of."""
    if not isinstance(ref, BoundRef):
        raise InvalidCall(f"a live view needs a ref, as Auction.ref(id) returns it, not {ref!r}")
    handler = ref.entity_type.handler(view)
    if not handler.is_view:
        raise InvalidCall(f"{ref!r}.{view} is not a view, so no browser may watch it: decorate it with @view")
    source = Source(ref.type_name, ref.entity_id, view, handler.encode(args, {}))
    return Topic(source, template, language if template else "")


def read_token(token: str) -> Topic:
    """Return the topic of a token, or raise `Unknown`."""
    if len(token) > MAX_TOKEN:
        raise Unknown("the token is too long")
    try:
        name, entity, view, args, template, language = signing.Signer(salt=SALT).unsign_object(token)
        raw = base64.b64decode(args, validate=True)
    except (signing.BadSignature, ValueError, TypeError, binascii.Error) as error:
        raise Unknown("this site has not signed the token") from error
    return Topic(Source(name, entity, view, raw), template, language)


def key_of(token: str) -> str:
    """Return the short name of a token in messages: the same at the site and in the browser."""
    return token.rpartition(":")[2][:KEY_LENGTH]

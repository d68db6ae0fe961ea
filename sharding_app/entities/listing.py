"""`Refs`: the entities of a type, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sharding_app.entities import gateway, identifiers
from sharding_app.errors import InvalidCall, WrongContext
from sharding_app.protocol.builtin_commands import IDS
from sharding_app.protocol.call import Call
from sharding_app.protocol.listing import (
    NO_ENTITY,
    PAGE_IDS,
    IdsInMemory,
    WantedIds,
    decode_page,
    encode_wanted,
)

if TYPE_CHECKING:
    from sharding_app.entities.entity_type import EntityType

T = TypeVar("T")


class Refs(Generic[T]):
    """The refs of a type's entities: ``async for ref in Auction.refs()``.

    On a thread without an event loop, ``for`` does the same. Each loop reads anew, page by page.
    """

    page_ids = PAGE_IDS
    "Most ids of a page."

    def __init__(self, entity_type: EntityType, prefix: str, *, stored: bool) -> None:
        cls = entity_type.cls.__qualname__
        if entity_type.singleton_id is not None:
            raise InvalidCall(f"{cls} is a singleton: there is nothing to list")
        if stored and entity_type.kind == "memory" and not entity_type.proxy_only:
            raise InvalidCall(f"{cls} stores nothing: {cls}.refs(stored=False) lists those in memory")
        self._type = entity_type
        self.prefix = identifiers.id_prefix(prefix)
        self._stored = stored

    async def __aiter__(self) -> AsyncIterator[type[T]]:
        place: Any = None
        while True:
            if self._stored:
                page = self._page(await gateway.current().ask(self._call(place)))
            else:
                question = IdsInMemory(self.prefix, place)
                page = await gateway.inspector().inspect(self._type.name, question, None)
            ids, place = cast("tuple[list[str], Any]", page)
            for each in ids:
                yield self._ref(each)
            if place is None:
                return

    def __iter__(self) -> Iterator[type[T]]:
        if asyncio._get_running_loop() is not None:
            raise WrongContext(
                f"`for` would block the event loop of this thread: use `async for ref in {self!r}`"
            )
        return self._each()

    def _each(self) -> Iterator[type[T]]:
        place: Any = None
        while True:
            if self._stored:
                page = self._page(gateway.current().ask_sync(self._call(place)))
            else:
                question = IdsInMemory(self.prefix, place)
                page = gateway.inspector().inspect_sync(self._type.name, question, None)
            ids, place = cast("tuple[list[str], Any]", page)
            for each in ids:
                yield self._ref(each)
            if place is None:
                return

    def _call(self, after: str | None) -> Call:
        return Call(
            self._type.name, NO_ENTITY, IDS, encode_wanted(WantedIds(self.prefix, after or "", self.page_ids))
        )

    @staticmethod
    def _page(reply: bytes) -> object:
        """Return the ids of a page, and the place where the next one begins; None: there is
        none.
        """
        page = decode_page(reply)
        return page.ids, page.ids[-1] if page.more else None

    def _ref(self, entity_id: str) -> type[T]:
        return cast("type[T]", self._type.ref_class(entity_id))

    def __repr__(self) -> str:
        options = [f"prefix={self.prefix!r}"] if self.prefix else []
        options += [] if self._stored else ["stored=False"]
        return f"{self._type.cls.__qualname__}.refs({', '.join(options)})"

"""Many entities of one type, asked at once: ``await Auction.ask_many(ids).current()``.

Contract: ids are asked in pieces, each of them at once, so that a home gets one frame for its part
of a piece. Each id ends with a value or an error of its own. The next piece begins when all of the
former one have ended and the caller has taken them: any number of ids needs the memory of a piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast
from uuid import UUID

from sharding_app.entities import gateway, identifiers, transactions
from sharding_app.entities.refs import BoundRef, timeout_of
from sharding_app.errors import InvalidCall, ShardingError, WrongContext
from sharding_app.protocol.call import Call

if TYPE_CHECKING:
    from sharding_app.entities.entity_type import EntityType
    from sharding_app.entities.handler import Handler
    from sharding_app.entities.remote import Remote

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

Ids: TypeAlias = "Iterable[str | int | UUID | type[Any]] | AsyncIterable[str | int | UUID | type[Any]]"
"""Ids or refs. A ref is a class to a type checker."""
AT_A_TIME = 1000
"""As many messages as a frame takes."""
PIECE_BYTES = 4 * 1024 * 1024
"""About the most bytes of arguments or of answers in a piece."""


class Answer(Generic[R]):
    """The end of one call of many: its value, or its error."""

    __slots__ = ("_value", "entity_id", "error")

    def __init__(self, entity_id: str, value: R | None, error: ShardingError | None) -> None:
        self.entity_id = entity_id
        self.error = error
        self._value = value

    @property
    def value(self) -> R:
        """The reply; raises the error if there is none."""
        if self.error is not None:
            raise self.error
        return cast(R, self._value)

    def __repr__(self) -> str:
        return f"<Answer of {self.entity_id!r}: {self._value if self.error is None else self.error!r}>"


class Answers(dict[str, R]):
    """The replies by id. ``errors`` has the ids without one, and ``answers[id]`` raises theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, ShardingError] = {}

    if TYPE_CHECKING:

        def __getitem__(self, key: str | int | UUID) -> R: ...

    def __missing__(self, key: str | int | UUID) -> R:
        if not isinstance(key, str):
            return self[identifiers.entity_id(key)]
        if key in self.errors:
            raise self.errors[key]
        raise KeyError(key)

    def _take(self, answers: Iterable[Answer[R]]) -> None:
        for each in answers:
            if each.error is None:
                self[each.entity_id] = each.value
            else:
                self.errors[each.entity_id] = each.error


class Many(Generic[T]):
    """Many entities of one type: ``await Auction.ask_many(ids).current()``.

    To a type checker each attribute is a handler with any arguments and replies.
    ``Auction.ask_many(ids)(Auction.current)`` is the same call, and is checked.
    """

    def __init__(
        self, entity_type: EntityType, ids: Ids, timeout: Any, command_id: Any, at_a_time: Any
    ) -> None:
        if entity_type.singleton_id is not None:
            raise InvalidCall(f"{entity_type.cls.__qualname__} is a singleton: there is one of it to ask")
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable | AsyncIterable):
            raise InvalidCall(
                f"ask_many() takes ids or refs, in a list for example, not {type(ids).__name__}"
            )
        if type(at_a_time) is not int or at_a_time < 1:
            raise InvalidCall(f"at_a_time must be an int of at least 1, not {at_a_time!r}")
        self._type = entity_type
        self._ids = ids
        self._timeout = timeout_of(entity_type, timeout)
        self._command_id = "" if command_id is None else identifiers.command_id(command_id)
        self._at_a_time = at_a_time

    def __call__(self, handler: Remote[P, R], *args: P.args, **kwargs: P.kwargs) -> Asking[R]:
        """Ask each of them: ``Auction.ask_many(ids)(Auction.current)``."""
        return Asking(self, self._type.handler(self._named(handler)), args, kwargs)

    def __getattr__(self, name: str) -> Callable[..., Asking[Any]]:
        if name.startswith("__"):
            raise AttributeError(name)
        handler = self._handler(name)
        return lambda *args, **kwargs: Asking(self, handler, args, kwargs)

    @property
    def sync(self) -> SyncMany:
        """The same entities, for code without an event loop."""
        return SyncMany(self)

    def _named(self, handler: object) -> str:
        owner, name = getattr(handler, "owner", None), getattr(handler, "name", None)
        if not (isinstance(owner, type) and isinstance(name, str) and issubclass(self._type.cls, owner)):
            cls = self._type.cls.__qualname__
            raise InvalidCall(f"{self!r} takes a handler of {cls}, such as {cls}.name, not {handler!r}")
        return name

    def _handler(self, name: str) -> Handler:
        if name not in self._type.commands:
            raise AttributeError(f"{self._type.cls.__qualname__} has no command or query {name!r}")
        return self._type.commands[name]

    def __repr__(self) -> str:
        return f"{self._type.cls.__qualname__}.ask_many(...)"


class SyncMany:
    """``ask_many(ids).sync``: a call blocks, and returns all `Answers`."""

    __slots__ = ("_many",)

    def __init__(self, many: Many[Any]) -> None:
        self._many = many

    def __call__(self, handler: Remote[P, R], *args: P.args, **kwargs: P.kwargs) -> Answers[R]:
        """Ask each of them: ``Auction.ask_many(ids).sync(Auction.current)``."""
        return self._many(handler, *args, **kwargs)._all_sync()

    def __getattr__(self, name: str) -> Callable[..., Answers[Any]]:
        if name.startswith("__"):
            raise AttributeError(name)
        ask = getattr(self._many, name)
        return lambda *args, **kwargs: ask(*args, **kwargs)._all_sync()

    def __repr__(self) -> str:
        return f"{self._many!r}.sync"


class Asking(Generic[R]):
    """A call of many entities, not made yet.

    Awaited it returns all `Answers`. ``async for`` yields each `Answer`, piece by piece.
    """

    def __init__(
        self, many: Many[Any], handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._many = many
        self._handler = handler
        self._args = handler.encode(args, kwargs)

    def __await__(self) -> Generator[Any, Any, Answers[R]]:
        return self._all().__await__()

    async def __aiter__(self) -> AsyncIterator[Answer[R]]:
        piece: dict[str, None] = {}
        size = self._first_size()
        async for each in _any_way(self._many._ids):
            piece[_id_of(each, self._many._type)] = None
            if len(piece) >= size:
                answers, size = await self._ask(piece)
                piece = {}
                for answer in answers:
                    yield answer
        for answer in (await self._ask(piece))[0]:
            yield answer

    async def _all(self) -> Answers[R]:
        answers: Answers[R] = Answers()
        async for each in self:
            answers._take((each,))
        return answers

    def _all_sync(self) -> Answers[R]:
        many = self._many
        if asyncio._get_running_loop() is not None:
            raise WrongContext(
                f"{many!r}.sync.{self._handler.name}() would block the event loop of this thread:"
                f" use `await {many!r}.{self._handler.name}(...)`"
            )
        if not isinstance(many._ids, Iterable):
            raise InvalidCall(f"{many!r}.sync takes ids that can be iterated without an event loop")
        answers: Answers[R] = Answers()
        ids = dict.fromkeys(_id_of(each, many._type) for each in many._ids)
        size, rest = self._first_size(), iter(ids)
        while piece := list(islice(rest, size)):
            replies = gateway.current().ask_all_sync(self._calls(piece))
            answers._take(map(self._answer, piece, replies))
            size = self._next_size(replies)
        return answers

    async def _ask(self, piece: Iterable[str]) -> tuple[list[Answer[R]], int]:
        """Ask a piece; return its answers, and the size of the next one."""
        replies = await asyncio.gather(*gateway.current().ask_all(self._calls(piece)), return_exceptions=True)
        return [self._answer(*each) for each in zip(piece, replies, strict=True)], self._next_size(replies)

    def _calls(self, piece: Iterable[str]) -> list[Call]:
        many, handler = self._many, self._handler
        if (connection := transactions.find_open()) is not None:
            transactions.warn(connection, many, handler.name)
        made = many._type.name, handler.name, self._args, many._timeout, many._command_id
        name, command, args, timeout, command_id = made
        return [Call(name, each, command, args, timeout, command_id) for each in piece]

    def _answer(self, entity_id: str, reply: bytes | BaseException) -> Answer[R]:
        if isinstance(reply, bytes):
            try:
                return Answer(entity_id, self._handler.decode_result(reply), None)
            except ShardingError as error:
                reply = error
        if not isinstance(reply, ShardingError):
            raise reply
        return Answer(entity_id, None, reply)

    def _first_size(self) -> int:
        return piece_size(self._many._at_a_time, len(self._args))

    def _next_size(self, replies: Iterable[bytes | BaseException]) -> int:
        sizes = [len(each) for each in replies if isinstance(each, bytes)]
        mean = sum(sizes) // len(sizes) if sizes else 0
        return piece_size(self._many._at_a_time, max(mean, len(self._args)))

    def __repr__(self) -> str:
        return f"<{self._many!r}.{self._handler.name}(...), not asked yet>"


def piece_size(at_a_time: int, bytes_each: int) -> int:
    """Return the number of ids to ask at once, if the arguments or answers of each have so many
    bytes.
    """
    return max(1, min(at_a_time, PIECE_BYTES // max(1, bytes_each)))


def _id_of(given: object, entity_type: EntityType) -> str:
    if isinstance(given, BoundRef):
        if given.type_name != entity_type.name:
            raise InvalidCall(f"{given!r} is no ref of {entity_type.cls.__qualname__}")
        return given.entity_id
    return identifiers.entity_id(cast(Any, given))


async def _any_way(ids: Ids) -> AsyncIterator[Any]:
    if isinstance(ids, AsyncIterable):
        async for each in ids:
            yield each
    else:
        for each in ids:
            yield each

"""`Handler`: one command or query of one entity type, as hosts and refs use it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sharding_app.entities.codecs.arguments import ArgumentCodec
from sharding_app.entities.codecs.results import ResultCodec
from sharding_app.entities.handlers import Command

if TYPE_CHECKING:
    from sharding_app.entities.entity_type import EntityType


class Handler:
    """One command or query of one entity type, with its compiled codecs."""

    __slots__ = (
        "_declared",
        "_entity_type",
        "_owner",
        "decode",
        "decode_result",
        "digest",
        "encode",
        "encode_result",
        "fenced",
        "function",
        "is_async",
        "is_query",
        "is_view",
        "label",
        "name",
        "public",
        "thread",
    )

    #: ``(args, kwargs) -> bytes``, at the caller.
    encode: Callable[[tuple[Any, ...], dict[str, Any]], bytes]
    #: ``raw -> tuple`` for ``function(obj, *args)``, at the entity.
    decode: Callable[[bytes | memoryview], tuple[Any, ...]]
    #: ``raw -> str``: equal calls have equal ones (nearly always).
    digest: Callable[[bytes | memoryview], str]
    #: ``result -> bytes``, at the entity.
    encode_result: Callable[[Any], bytes]
    #: ``bytes -> result``, at the caller.
    decode_result: Callable[[bytes | memoryview], Any]

    def __init__(self, entity_type: EntityType, declared: Command[Any, Any], owner: type) -> None:
        self._entity_type = entity_type
        self._declared = declared
        self._owner = owner
        self.name = declared.name
        #: What Python calls a call of it that is not awaited.
        self.label = f"{entity_type.cls.__qualname__}.{declared.name}"
        self.is_query = declared.is_query
        self.is_view = declared.is_view
        self.public = declared.public
        self.thread = declared.thread
        self.fenced = declared.fenced
        self.is_async = declared.is_async
        #: Called with the object and every argument by position; a coroutine if `is_async`.
        self.function = declared.parameters.by_position(declared.function)
        self.encode = lambda args, kwargs: self._arguments().encode(args, kwargs)
        self.decode = lambda raw: self._arguments().decode(raw)
        self.digest = lambda raw: self._arguments().digest(raw)
        self.encode_result = lambda result: self._result().encode(result)
        self.decode_result = lambda raw: self._result().decode(raw)

    def again(self) -> Handler:
        """Return another handler of the same declaration."""
        return Handler(self._entity_type, self._declared, self._owner)

    def __repr__(self) -> str:
        return f"<{self._declared.word} {self._entity_type.cls.__qualname__}.{self.name}>"

    def compile(self) -> None:
        """Make the codecs now, so that a wrong annotation raises here instead of at the first
        call.
        """
        self._arguments()
        self._result()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its arguments, in order."""
        return self._declared.parameters.names

    def signature(self) -> list[tuple[str, Any, bool]]:
        """Return name and annotation of each argument, and whether it has a default."""
        hints, parameters = self._hints(), self._declared.parameters
        return [(name, hints.get(name, Any), name in parameters.defaults) for name in parameters.names]

    def encode_answer(self, value: object) -> bytes:
        """Encode the arguments of a command that ``reply_to`` or ``on_failure`` names.

        It takes the target's result, or the `Failure`; or nothing, if it has no parameter.
        """
        return self.encode((value,) if self.parameters else (), {})

    def _what(self) -> str:
        return f"{self._entity_type.name}.{self.name}"

    def _arguments(self) -> ArgumentCodec:
        codec = ArgumentCodec(self._declared.parameters, self._hints(), self._what())
        self.encode, self.decode, self.digest = codec.encode, codec.decode, codec.digest
        return codec

    def _result(self) -> ResultCodec:
        wanted = self._hints().get("return", Any)
        codec = ResultCodec(wanted, self._what(), checked=not self.is_query)
        self.encode_result, self.decode_result = codec.encode, codec.decode
        return codec

    def _hints(self) -> dict[str, Any]:
        plain = inspect.unwrap(self._declared.function)
        return self._entity_type.hints(plain, self._owner, self._what())

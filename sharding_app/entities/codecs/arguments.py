"""The arguments of a handler: bound at the caller, checked at the entity, with one compiled codec
per handler.

On the wire they are an array in the order of the parameters. Defaults at its end may be missing;
the entity's own code fills them in. So a parameter with a default can be added while old callers
still run.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from decimal import Decimal
from types import FunctionType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from sharding_app.entities.codecs import values
from sharding_app.errors import DeclarationError, InvalidCall, NotSerializable
from sharding_app.redaction import shown, told_reading

MAX_PARAMETERS = 15  # the length of an array is then its first byte
_FIXARRAY = 0x90
_DIGEST_BYTES = 4


def _without_personal(value: Any) -> Any:
    """Leave personal values out: a digest is stored, and would tell whether a guess is right."""
    return None if hasattr(type(value), "__sharding_store__") else values.enc_hook(value)


_sorted = msgspec.msgpack.Encoder(enc_hook=_without_personal, order="deterministic").encode
_PATH = re.compile(r" - at `\$\[(\d+)\](.*)`$", re.DOTALL)


class Parameters:
    """Return the parameters of a handler besides ``self``, without evaluating anything."""

    __slots__ = ("defaults", "keyword_only", "names", "positional", "required", "signature")

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        plain = inspect.unwrap(function)
        if not isinstance(plain, FunctionType):
            raise DeclarationError(f"{what} is not a method of the class, but {plain!r}")
        code = plain.__code__
        if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            raise DeclarationError(
                f"{what} takes *args or **kwargs: name each argument, so that it can be checked"
            )
        if code.co_argcount < 1:
            raise DeclarationError(f"{what} has no self")
        if code.co_argcount + code.co_kwonlyargcount - 1 > MAX_PARAMETERS:
            raise DeclarationError(f"{what} has more than {MAX_PARAMETERS} arguments")
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        self.names: tuple[str, ...] = names
        #: How many may be given by position.
        self.positional = code.co_argcount - 1
        self.keyword_only: tuple[str, ...] = names[self.positional :]
        self.defaults: dict[str, Any] = dict(plain.__kwdefaults__ or {})
        tail = plain.__defaults__ or ()
        if tail:
            self.defaults.update(
                zip(names[: self.positional][-len(tail) :], tail[-self.positional :], strict=False)
            )
        required = [index for index, name in enumerate(names) if name not in self.defaults]
        #: An array of at least this many values can be completed from the defaults.
        self.required = required[-1] + 1 if required else 0
        only = max(code.co_posonlyargcount - 1, 0)
        kinds: list[Any] = [inspect.Parameter.POSITIONAL_ONLY] * only
        kinds += [inspect.Parameter.POSITIONAL_OR_KEYWORD] * (self.positional - only)
        kinds += [inspect.Parameter.KEYWORD_ONLY] * len(self.keyword_only)
        self.signature = inspect.Signature(
            [
                inspect.Parameter(name, kind, default=self.defaults.get(name, inspect.Parameter.empty))
                for name, kind in zip(names, kinds, strict=True)
            ]
        )

    def by_position(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, callable with every argument by position."""
        if not self.keyword_only:
            return function
        count, keywords = self.positional + 1, self.keyword_only

        def call(*args: Any) -> Any:
            return function(*args[:count], **dict(zip(keywords, args[count:], strict=True)))

        return call


class ArgumentCodec:
    """``encode(args, kwargs) -> bytes`` for callers and ``decode(raw) -> tuple`` for hosts."""

    __slots__ = ("_exact", "_parameters", "_readers", "_types", "_what", "decode", "encode")

    def __init__(self, parameters: Parameters, types: dict[str, Any], what: str) -> None:
        self._parameters = parameters
        self._types = tuple(types.get(name, Any) for name in parameters.names)
        self._what = what
        self._exact = any(values.says_any(wanted) for wanted in self._types)
        self._readers: dict[int, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {}
        "By number of arguments, of those that were seen and may be given."
        try:
            self.decode = self._decoder()
        except TypeError as error:
            raise DeclarationError(f"{what}: an argument cannot be sent: {error}") from error
        self.encode = self._encoder()

    def digest(self, raw: bytes | memoryview) -> str:
        """Return a short digest that is equal for equal calls, however they were written, in every
        process.

        Personal values do not count. Defaults at the end do not count either, so that a parameter
        with a default may be added between two attempts.
        """
        names, defaults = self._parameters.names, self._parameters.defaults
        parts = [_canonical(value) for value in self.decode(raw)]
        while parts and names[len(parts) - 1] in defaults:
            if parts[-1] != _canonical(defaults[names[len(parts) - 1]]):
                break
            parts.pop()
        return hashlib.blake2b(values.pack(parts), digest_size=_DIGEST_BYTES).hexdigest()

    def _encoder(self) -> Callable[[tuple[Any, ...], dict[str, Any]], bytes]:
        parameters = self._parameters
        least, most = parameters.required, parameters.positional
        bind, pack, refuse, exact = self._bind, values.pack, self._refuse, self._exact
        check = self._check
        decimals = [place for place, wanted in enumerate(self._types) if _is_decimal(wanted)]
        refuse_floats = self._refuse_floats

        def encode(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
            if kwargs or not least <= len(args) <= most:
                args = bind(args, kwargs)
            if decimals:
                refuse_floats(args, decimals)
            try:
                data = pack(args)
            except values.ERRORS as error:
                raise refuse(args, error) from error
            if exact:
                check(args, data)
            return data

        return encode

    def _decoder(self) -> Callable[[Any], tuple[Any, ...]]:
        count = len(self._types)
        full, explain, shorter = self._reader(count)[0], self._explain, self._shorter
        first, readers = _FIXARRAY + count, self._readers

        def decode(raw: Any) -> tuple[Any, ...]:
            try:
                if raw[0] == first:
                    return full(raw)  # type: ignore[no-any-return]
                known = readers.get(raw[0] - _FIXARRAY)
                if known is None:
                    return shorter(raw)
                return known[0](raw) + known[1]  # type: ignore[no-any-return]
            except InvalidCall:
                raise
            except (*values.ERRORS, IndexError) as error:
                raise explain(error) from error

        return decode

    def _reader(self, count: int) -> tuple[Callable[[Any], Any], tuple[Any, ...]]:
        found = self._readers.get(count)
        if found is None:
            parameters = self._parameters
            wanted: Any = self._types[:count]
            read = values.unpacker(tuple[wanted])
            rest = tuple(parameters.defaults[name] for name in parameters.names[count:])
            found = self._readers[count] = (read, rest)
        return found

    def _shorter(self, raw: Any) -> tuple[Any, ...]:
        parameters = self._parameters
        count = raw[0] - _FIXARRAY
        if 0 <= count <= MAX_PARAMETERS:
            if count > len(self._types):
                raise InvalidCall(
                    f"{self._what} takes {len(self._types)} arguments here, but got {count}:"
                    " this node runs other code than the caller"
                )
            if count < parameters.required:
                missing = parameters.names[count]
                raise InvalidCall(f"{self._what}: argument {missing!r} is missing")
            read, rest = self._reader(count)
            return read(raw) + rest  # type: ignore[no-any-return]
        raise InvalidCall(f"{self._what}: the arguments are not an array")

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return `args` and `kwargs` in the order of the parameters; the quick way when all are
        given.
        """
        names = self._parameters.names
        given = len(args)
        if given + len(kwargs) == len(names) and given <= self._parameters.positional:
            try:
                return args + tuple([kwargs[name] for name in names[given:]])
            except KeyError:
                pass  # the full way below reports the error
        try:
            bound = self._parameters.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidCall(f"{self._what}{self._parameters.signature}: {error}") from error
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def _check(self, args: tuple[Any, ...], data: bytes) -> None:
        """Check that a value without an annotation comes back as it is; else refuse it."""
        try:
            again = self._reader(len(args))[0](data)
        except msgspec.MsgspecError:
            return  # the entity's check explains it better
        for name, given, read in zip(self._parameters.names, args, again, strict=False):
            if given != read and not values.same(given, read):
                raise NotSerializable(
                    f"{self._what}: argument {name!r} would arrive as {shown(read)}, not {shown(given)}:"
                    " annotate it with its type"
                )

    def _refuse_floats(self, args: tuple[Any, ...], decimals: list[int]) -> None:
        """Refuse a float where a Decimal is wanted: it would arrive with all digits of its own
        inexactness, 0.1 + 0.2 as 0.30000000000000004.
        """
        for place in decimals:
            if place < len(args) and isinstance(args[place], float):
                raise InvalidCall(
                    f"{self._what}: argument {self._parameters.names[place]!r} is a Decimal, and got the float"
                    f" {shown(args[place])}, which is not exact: make a Decimal of a text, as in Decimal('10.50')"
                )

    def _refuse(self, args: tuple[Any, ...], error: Exception) -> NotSerializable:
        for name, value in zip(self._parameters.names, args, strict=False):
            try:
                values.pack(value)
            except values.ERRORS as inner:
                return NotSerializable(
                    f"{self._what}: argument {name!r} cannot be sent: {values.reason(inner)}"
                )
        return NotSerializable(f"{self._what}: {values.reason(error)}")

    def _explain(self, error: Exception) -> InvalidCall:
        text = told_reading(error)
        found = _PATH.search(text)
        if found is None:
            return InvalidCall(f"{self._what}: the arguments cannot be read: {text}")
        name = self._parameters.names[int(found[1])]
        where = f" at {found[2]}" if found[2] else ""
        return InvalidCall(f"{self._what}: argument {name!r}{where}: {text[: found.start()]}")


def _is_decimal(wanted: Any) -> bool:
    """Tell whether an annotation is Decimal, or Decimal or None."""
    parts = set(get_args(wanted)) if get_origin(wanted) in (Union, UnionType) else {wanted}
    return Decimal in parts and parts <= {Decimal, NoneType}


def _canonical(value: Any) -> bytes:
    """Return the canonical encoding of `value`; all defaults that cannot be sent are equal."""
    try:
        return _sorted(value)
    except values.ERRORS:
        return b""

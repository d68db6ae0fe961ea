"""``@command``, ``@query`` and ``@view``: the requests that an entity answers, as descriptors that
know which side they are on. A view is a query that browsers may watch.

Through a ref (to a type checker: through the class) a handler is a `Remote`. On the entity itself
it raises, since a call there would bypass the mailbox; ``super().add(...)`` in an overriding
handler runs the method it overrides.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from datetime import time, timedelta
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from sharding_app.entities import schedules
from sharding_app.entities.codecs.arguments import Parameters
from sharding_app.entities.remote import Remote, Unbound
from sharding_app.errors import DeclarationError, InvalidCall
from sharding_app.protocol.delivery.recurrence import Missed, Recurrence

P = ParamSpec("P")
R = TypeVar("R")


class Command(Generic[P, R]):
    """A declared handler; `query` and `view` make them too. Everything about it is fixed when it is
    declared.
    """

    def __init__(
        self,
        function: Any,
        *,
        is_query: bool,
        thread: bool,
        fenced: bool,
        concurrent: bool = False,
        is_view: bool = False,
        public: bool = False,
    ) -> None:
        self.word = "view" if is_view else "query" if is_query else "command"
        if not callable(function) or isinstance(function, type):
            raise DeclarationError(f"@{self.word} decorates a method, not {function!r}")
        self.function = function
        self.is_query = is_query
        self.thread = thread
        self.fenced = fenced
        self.concurrent = concurrent
        self.is_view = is_view
        self.public = public
        self.name: str = getattr(function, "__name__", "?")
        what = f"@{self.word} {getattr(function, '__qualname__', self.name)}"
        self.parameters = Parameters(function, what)
        plain = inspect.unwrap(function)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise DeclarationError(f"{what} must not yield: return a list instead")
        self.is_async = inspect.iscoroutinefunction(function)
        if thread and self.is_async:
            raise DeclarationError(f"{what} runs in a thread: use a plain def, not async")
        if concurrent and (thread or fenced or self.is_async):
            raise DeclarationError(
                f"{what} is concurrent: it must be a plain def that waits for nothing,"
                " so without thread=True and fenced=True"
            )
        if is_view and "return" not in getattr(plain, "__annotations__", {}):
            raise DeclarationError(f"{what} is shown by pages: annotate the value that it returns")
        #: When a singleton calls it by itself.
        self.every: Recurrence | None = None
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Remote[P, R]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> Callable[P, R]: ...
    def __get__(self, instance: object, owner: type[Any]) -> Any:
        if instance is None:
            return Unbound(owner, self.name)
        if inspect.getattr_static(owner, self.name, None) is not self:
            return self.function.__get__(instance, owner)  # through super()
        return OnSelf(owner, self.name, self.word)


OURS = ("send", "schedule", "cancel", "after_commit")
"""Methods of every entity that a command may hide: their names are too good to be taken away."""


class OnSelf:
    """``self.add`` inside an entity: not callable, with an error that names the ways out."""

    __slots__ = ("_message", "name", "owner")

    def __init__(self, owner: type[Any], name: str, word: str) -> None:
        self.owner = owner
        self.name = name
        self._message = (
            f"{owner.__qualname__}.{name} is a {word}: a call on self would bypass the mailbox."
            " Move the shared code into a plain method and call that, or ask another entity through"
            f" {owner.__qualname__}.ref(id)"
        )
        if name in OURS:
            self._message += f". The {name}() of every entity is super().{name}() here"

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise InvalidCall(self._message)

    def tell(self, *args: object, **kwargs: object) -> None:
        raise InvalidCall(self._message)


class CommandDecorator(Protocol):
    """``@command(...)`` with options."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /
    ) -> Command[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Command[P, R]: ...


class QueryDecorator(Protocol):
    """``@query(concurrent=True)``: it decorates a plain ``def``."""

    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Command[P, R]: ...


@overload
def command(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> Command[P, R]: ...
@overload
def command(function: Callable[Concatenate[Any, P], R], /) -> Command[P, R]: ...
@overload
def command(*, thread: bool = False) -> CommandDecorator: ...
def command(function: Any = None, /, *, thread: bool = False) -> Any:
    """Declare a handler that may change the entity.

    With ``thread=True`` it runs in a thread and may block.
    """

    def declare(function: Callable[..., Any]) -> Command[Any, Any]:
        return Command(function, is_query=False, thread=thread, fenced=False)

    return declare if function is None else declare(function)


@overload
def query(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> Command[P, R]: ...
@overload
def query(function: Callable[Concatenate[Any, P], R], /) -> Command[P, R]: ...
@overload
def query(*, thread: bool = False, fenced: bool = False) -> CommandDecorator: ...
@overload
def query(*, concurrent: Literal[True]) -> QueryDecorator: ...
def query(
    function: Any = None, /, *, thread: bool = False, fenced: bool = False, concurrent: bool = False
) -> Any:
    """Declare a handler that only reads.

    With ``fenced=True`` PostgreSQL confirms that no newer home exists. With ``concurrent=True`` it
    answers from the committed state while a command of the entity is under way.
    """

    def declare(function: Callable[..., Any]) -> Command[Any, Any]:
        return Command(function, is_query=True, thread=thread, fenced=fenced, concurrent=concurrent)

    return declare if function is None else declare(function)


class ViewDecorator(Protocol):
    """``@view(...)``: it decorates a plain ``def``."""

    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Command[P, R]: ...


@overload
def view(function: Callable[Concatenate[Any, P], R], /) -> Command[P, R]: ...
@overload
def view(*, public: bool = False, concurrent: bool = False) -> ViewDecorator: ...
def view(function: Any = None, /, *, public: bool = False, concurrent: bool = False) -> Any:
    """Declare a query whose value browsers may watch: those whose user `may_watch` it.

    With ``public=True`` each browser may that has a page of the site which shows it, without a
    login. ``concurrent`` is that of `query`.
    """

    def declare(function: Callable[..., Any]) -> Command[Any, Any]:
        if inspect.iscoroutinefunction(function):
            name = getattr(function, "__qualname__", "?")
            raise DeclarationError(f"@view {name} must be a plain def: it shows what the entity knows")
        return Command(
            function,
            is_query=True,
            thread=False,
            fenced=False,
            concurrent=concurrent,
            is_view=True,
            public=public,
        )

    return declare if function is None else declare(function)


class EveryDecorator(Protocol):
    """``@every(...)``."""

    def __call__(self, command: Command[[], R], /) -> Command[[], R]: ...


@overload
def every(
    *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, missed: Missed = "once"
) -> EveryDecorator: ...
@overload
def every(*, day_at: str | time, tz: str, missed: Missed = "once") -> EveryDecorator: ...
def every(
    *,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    day_at: str | time | None = None,
    tz: str | None = None,
    missed: Missed = "once",
) -> EveryDecorator:
    """Have a singleton call one of its commands again and again, by a durable timer.

    ``@every(hours=1)`` or ``@every(day_at="07:00", tz="Europe/Berlin")``, above ``@command``.
    """
    interval = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    try:
        if day_at is None:
            if tz is not None:
                raise InvalidCall("tz= goes with day_at=")
            spec = schedules.recurrence(interval, missed)
        elif interval:
            raise InvalidCall("say either an interval or day_at=, not both")
        else:
            spec = schedules.recurrence(schedules.Daily(day_at, tz=tz or ""), missed)
    except InvalidCall as error:
        raise DeclarationError(f"@every: {error}") from error

    def declare(command: Command[[], R], /) -> Command[[], R]:
        given: object = command
        if not isinstance(given, Command) or given.is_query:
            raise DeclarationError(f"@every stands above @command, and decorates a command, not {given!r}")
        if given.parameters.required:
            raise DeclarationError(f"@every: {given.name} is called without arguments, but needs some")
        given.every = spec
        return command

    return declare

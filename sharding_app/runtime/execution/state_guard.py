"""`StateGuard`: finds state that a handler changes outside of the appliers.

It runs in development (DEBUG) and in tests. Such a change looks right until the entity is rebuilt
from its events, and is gone then. Or a snapshot makes it durable, although no event tells of it.

Contract: it compares all that is stored of a state, the annotated attributes or the result of the
class's own `snapshot()`: at the beginning and the end of each handler, and around each applier. So
a handler may change any attribute without an annotation, such as a cache. An attribute whose value
cannot be encoded is not compared. Production has no guard, and no code of one runs there.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from sharding_app.entities.codecs.values import canonical_json, parts
from sharding_app.entities.entity_type import EntityType, Handler
from sharding_app.entities.event_codec import Apply
from sharding_app.errors import WrongContext
from sharding_app.runtime.execution.message_handler import MessageHandler

Fingerprint = Mapping[str, bytes | None]
"""Each part of a state, encoded. None: it cannot be, and equals everything."""

REMEDY = (
    "Such a change is lost when the entity is rebuilt from its events. Persist an event, and make the change in the"
    " method that applies it (@applies). An attribute that is no state, such as a cache, has no annotation in the"
    " class body"
)


def fingerprint(entity_type: EntityType, entity: Any) -> Fingerprint:
    """Return all that is stored of an object's state, part by part."""
    try:
        if entity_type.own_snapshot is None:
            values = {name: getattr(entity, name, msgspec.UNSET) for name in entity_type.state_names}
        else:
            snapshot = entity.snapshot()
            values = dict(parts(snapshot)) or {"snapshot()": snapshot}
    except Exception:  # noqa: BLE001  (the user's code, or annotations that cannot be resolved)
        return {}
    return {name: _encoded(value) for name, value in values.items()}


def differing(entity_type: EntityType, entity: object, was: Fingerprint, now: Fingerprint) -> list[str]:
    """Return the names of the parts that have changed."""
    names = [name for name in {**was, **now} if _differ(was.get(name, b""), now.get(name, b""))]
    if names and entity_type.own_snapshot is not None:
        # A `snapshot()` may be of the moment: what differs at once again is no change.
        again = fingerprint(entity_type, entity)
        names = [name for name in names if not _differ(again.get(name, b""), now.get(name, b""))]
    return names


def _encoded(value: Any) -> bytes | None:
    if value is msgspec.UNSET:
        return b""
    try:
        return canonical_json(value)
    except Exception:  # noqa: BLE001  (a value that cannot be stored, or a set that cannot be sorted)
        return None


def _differ(was: bytes | None, now: bytes | None) -> bool:
    return was is not None and now is not None and was != now


class _Run:
    """A handler at work on an object."""

    def __init__(self, entity_type: EntityType, entity: Any) -> None:
        self._type = entity_type
        self._entity = entity
        self.at = fingerprint(entity_type, entity)
        "The state after the last look, or the last applier."
        self.changed: dict[str, None] = {}
        "The names of what has changed outside of appliers."

    def look(self) -> None:
        """Note what has changed since the last look."""
        now = fingerprint(self._type, self._entity)
        self.changed.update(dict.fromkeys(differing(self._type, self._entity, self.at, now)))
        self.at = now

    def apply(self, apply: Apply, event: object) -> None:
        """Apply an event, whose changes do not count."""
        self.look()
        try:
            apply(self._entity, event)
        finally:
            self.at = fingerprint(self._type, self._entity)


_runs: dict[int, _Run] = {}
"""By the identity of the object, which is alive as long as its handler runs."""


def _observed(apply: Apply) -> Apply:
    @functools.wraps(apply)
    def observed(entity: Any, event: Any) -> None:
        run = _runs.get(id(entity))
        if run is None:
            apply(entity, event)
        else:
            run.apply(apply, event)

    return observed


class _Seen(NamedTuple):
    """An object as its last handler has left it."""

    entity: "weakref.ref[Any]"
    handler: str
    state: Fingerprint


class StateGuard:
    """Guards the objects of one event-sourced type in one process."""

    def __init__(self, entity_type: EntityType) -> None:
        self._type = entity_type
        self._seen: dict[int, _Seen] = {}
        # `persist` asks the class's own type for appliers, under whatever name it is hosted.
        entity_type.cls._sharding_type.event_codec.surround(_observed)

    def guarded(self, handler: Handler) -> Handler:
        """Return the same handler, whose changes outside of appliers raise an error."""
        if isinstance(handler, MessageHandler):
            made: Any = MessageHandler(self._type)
        else:
            made = handler.again()
        made.function = self._watched(handler.name, handler.function, is_async=handler.is_async)
        return cast(Handler, made)

    def _watched(self, name: str, function: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        if is_async:

            async def run_async(entity: Any, *args: Any) -> Any:
                with self._watching(entity, name):
                    return await function(entity, *args)

            return run_async

        def run(entity: Any, *args: Any) -> Any:
            with self._watching(entity, name):
                return function(entity, *args)

        return run

    @contextlib.contextmanager
    def _watching(self, entity: Any, name: str) -> Iterator[None]:
        run = _Run(self._type, entity)
        self._compare_with_last(entity, run)
        outer = _runs.get(id(entity))  # a query that waits, beside which this one runs
        _runs[id(entity)] = run
        try:
            yield
        except Exception as error:
            self._judge(entity, run, name, error)
            raise
        else:
            self._judge(entity, run, name, None)
        finally:
            if outer is None:
                del _runs[id(entity)]
            else:
                _runs[id(entity)] = outer

    def _compare_with_last(self, entity: Any, run: _Run) -> None:
        """Raise the error for what has changed since the last handler: it is not this one's."""
        last = self._seen.pop(id(entity), None)
        if last is None or last.entity() is not entity:
            return
        names = differing(self._type, entity, last.state, run.at)
        if names:
            raise _error(
                f"{_listed(names)} changed after {last.handler} had ended and before this call began, as by a"
                " function of after_commit() or a task"
            )

    def _judge(self, entity: Any, run: _Run, name: str, error: Exception | None) -> None:
        """Raise the error for what a handler has changed itself."""
        run.look()
        if run.changed:
            raise _error(f"{_listed(list(run.changed))} changed outside of an applier") from error
        key = id(entity)
        with contextlib.suppress(TypeError):  # a class with __slots__ may have no weak references
            reference = weakref.ref(entity, lambda _: self._forget(key, reference))
            self._seen[key] = _Seen(reference, name, run.at)

    def _forget(self, key: int, reference: "weakref.ref[Any]") -> None:
        seen = self._seen.get(key)
        if seen is not None and seen.entity is reference:
            del self._seen[key]


def is_state_changed(error: BaseException) -> bool:
    """Whether it is the error of a guard: the object is to be rebuilt, whatever its supervision."""
    return isinstance(error, WrongContext) and error.code == "state_changed"


def _error(what: str) -> WrongContext:
    return WrongContext(f"{what}. {REMEDY}", code="state_changed")


def _listed(names: list[str]) -> str:
    return f"{', '.join(map(repr, names))} {'was' if len(names) == 1 else 'were'}"

"""Events of one entity type: to journal records and back, and their effect on the state.

Unknown fields of a record are ignored when it is read and stay in the journal, which is never
rewritten. A record of an older version goes through its upcasters one version at a time. An
unreadable record raises `UnreadableEvent`, except for names in the class's ``ignore_events``, which
read as None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from sharding_app.entities.codecs.values import Exact, json_text
from sharding_app.entities.events import EventSpec, event_spec
from sharding_app.entities.personal import revived
from sharding_app.errors import DeclarationError, InvalidCall, UnreadableEvent
from sharding_app.redaction import told, told_reading

Apply = Callable[[Any, Any], None]

FINISHED = "?finished"
"""The name of a record at the end of a command that had stored its last event before: it keeps the
reply for a retry. It is no user's event (no name of one looks like it) and changes nothing."""

MISSING = "Object missing required field"
"""Begins msgspec's error for a record without a field that the class wants."""


class Happening(NamedTuple):
    """One event class as `persist` needs it."""

    name: str
    version: int
    encode: Callable[[Any], bytes]
    apply: Apply


class UnknownEvent(UnreadableEvent):
    """An event, or a version of one, that this code does not know: of another release."""


class EventCodec:
    """The events that one entity type applies."""

    def __init__(self, what: str, appliers: dict[type, Apply], ignored: frozenset[str]) -> None:
        self._what = what
        self._appliers = appliers
        self.ignored = ignored
        self._specs: dict[str, EventSpec] = {}
        for cls in appliers:
            self._add(cls)
        #: By class; filled as the classes are first seen.
        self.happenings: dict[type, Happening] = {}
        self._around: Callable[[Apply], Apply] | None = None
        self._readers: dict[tuple[str, int], Callable[[Any], Any]] = {}

    def _add(self, cls: type) -> None:
        spec = event_spec(cls)
        if spec is None:
            return
        known = self._specs.setdefault(spec.name, spec)
        if known is not spec:
            raise DeclarationError(
                f"{self._what} has two events named {spec.name!r}:"
                f" {known.cls.__qualname__} and {cls.__qualname__}: name one with @event(name=...)"
            )

    def declared(self) -> list[EventSpec]:
        """Return all events that may be stored: those that are applied, and those derived from
        them.
        """
        waiting: list[type[Any]] = list(self._appliers)
        found: dict[str, EventSpec] = {}
        while waiting:
            cls = waiting.pop()
            spec = event_spec(cls)
            if spec is not None:
                found.setdefault(spec.name, spec)
            waiting += cls.__subclasses__()
        return [found[name] for name in sorted(found)]

    def surround(self, around: Callable[[Apply], Apply]) -> None:
        """Run all appliers inside of `around` from now on, in development and in tests."""
        if self._around is not around:
            self._around = around
            self.happenings.clear()

    def happening(self, event: object) -> Happening:
        """Return how that event is stored and applied, or raise `InvalidCall` if no method applies
        it.
        """
        cls = type(event)
        found = self.happenings.get(cls)
        if found is not None:
            return found
        spec = event_spec(cls)
        if spec is None:
            raise InvalidCall(
                f"{self._what}.persist() takes events, and {cls.__qualname__} is not decorated with @event"
            )
        for base in cls.__mro__:
            if base in self._appliers:
                self._add(cls)
                codec = Exact(spec.resolve(), f"{self._what}: event {spec.name}")
                apply = self._appliers[base]
                if self._around is not None:
                    apply = self._around(apply)
                made = Happening(spec.name, spec.version, codec.encode, apply)
                self.happenings[cls] = made
                return made
        raise InvalidCall(
            f"nothing in {self._what} applies {cls.__qualname__}: add a method with"
            f" @applies({cls.__qualname__})"
        )

    def encode(self, event: object) -> tuple[str, int, bytes]:
        """Return the record of an event: name, version, JSON."""
        found = self.happening(event)
        return found.name, found.version, found.encode(event)

    def decode(self, name: str, version: int, data: bytes | str) -> Any:
        """Return the event of a record; None for one that the class ignores."""
        read = self._reader(name, version)
        try:
            return read(data)
        except UnreadableEvent:
            raise
        except Exception as error:
            raise self._unreadable(name, version, error) from error

    def check_known(self, name: str, version: int) -> None:
        """Raise `UnknownEvent` if only another release may be able to read such a record."""
        try:
            self._reader(name, version)
        except UnknownEvent:
            raise
        except UnreadableEvent:
            return

    def apply(self, obj: Any, event: object) -> None:
        """Change the state of `obj` by one event."""
        self.happening(event).apply(obj, event)

    def replay(self, obj: Any, rows: Iterable[tuple[int, str, int, bytes | str]]) -> None:
        """Apply stored rows ``(number, name, version, data)`` in order. An error names the row that
        fails, with its number.
        """
        # A history has few kinds of events, and mostly several of one kind in a row.
        read: Callable[[Any], Any] = _nothing
        apply: Apply | None = None
        last_name, last_version, last_class = "", 0, None
        for number, name, version, data in rows:
            try:
                if name != last_name or version != last_version:
                    read = self._reader(name, version)
                    last_name, last_version = name, version
                event = read(data)
            except Exception as error:
                found = self._unreadable(name, version, error)
                raise UnreadableEvent(
                    f"event {number}: {found.message}", params={**found.params, "number": number}
                ) from error
            if event is None:
                continue
            try:
                if apply is None or type(event) is not last_class:
                    apply, last_class = self.happening(event).apply, type(event)
                apply(obj, event)
            except Exception as error:
                raise UnreadableEvent(
                    f"event {number}: {self._what}: applying {name!r} of version {version} raised {told(error)}",
                    params={"event": name, "version": version, "number": number},
                ) from error

    def _unreadable(self, name: str, version: int, error: Exception) -> UnreadableEvent:
        if isinstance(error, UnreadableEvent):
            return error
        return UnreadableEvent(
            f"{self._what}: an event {name!r} of version {version} cannot be read: {told_reading(error)}"
            f"{self._advice(name, version, error)}",
            params={"event": name, "version": version},
        )

    def _advice(self, name: str, version: int, error: Exception) -> str:
        """Return how to read records that were written before a field was added."""
        spec = self._specs.get(name)
        lacks = isinstance(error, msgspec.ValidationError) and str(error).startswith(MISSING)
        if spec is None or version != spec.version or not lacks:
            return ""
        return (
            f". Give the field a default, or declare version={version + 1} and add"
            f" @upcasts({spec.cls.__qualname__}, from_version={version})"
        )

    def _reader(self, name: str, version: int) -> Callable[[Any], Any]:
        read = self._readers.get((name, version))
        if read is None:
            read = self._readers[name, version] = self._new_reader(name, version)
        return read

    def _new_reader(self, name: str, version: int) -> Callable[[Any], Any]:
        spec = self._specs.get(name) or self._subclass(name)
        if spec is not None and version == spec.version:
            return Exact(spec.resolve(), self._what).decode
        if name in self.ignored or name == FINISHED:
            return _nothing
        if spec is None:
            known = ", ".join(sorted(self._specs)) or "none"
            raise UnknownEvent(
                f"{self._what}: the journal has an unknown event {name!r} (known: {known})."
                " Restore the class, give a class that name, or list the name in ignore_events",
                params={"event": name, "version": version},
            )
        if version > spec.version:
            raise UnknownEvent(
                f"{self._what}: the journal has {name!r} of version {version}, this code knows up to"
                f" {spec.version}: it was written by newer code",
                params={"event": name, "version": version},
            )
        return self._upcasting(spec, version)

    def _upcasting(self, spec: EventSpec, version: int) -> Callable[[Any], Any]:
        steps = []
        for step in range(version, spec.version):
            upcaster = spec.upcasters.get(step)
            if upcaster is None:
                raise UnreadableEvent(
                    f"{self._what}: the journal has {spec.name!r} of version {version}, the current one is"
                    f" {spec.version}: add @upcasts({spec.cls.__qualname__}, from_version={step})",
                    params={"event": spec.name, "version": version},
                )
            steps.append(upcaster)
        final = Exact(spec.resolve(), self._what).decode
        read = msgspec.json.Decoder(dict[str, Any]).decode

        def upcast(data: bytes | str) -> Any:
            fields = revived(read(data))
            for upcaster in steps:
                fields = upcaster(fields)
            return final(json_text(fields))

        return upcast

    def _subclass(self, name: str) -> EventSpec | None:
        """Find an event class that is not applied itself, but one of whose bases is."""
        waiting: list[type[Any]] = list(self._appliers)
        while waiting:
            for cls in waiting.pop().__subclasses__():
                spec = event_spec(cls)
                if spec is not None and spec.name == name:
                    self._add(cls)
                    return spec
                waiting.append(cls)
        return None


def _nothing(data: object) -> None:
    """Read an ignored record, as None."""

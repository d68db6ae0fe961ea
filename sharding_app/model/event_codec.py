"""Events of one entity type: to journal records and back, and what they do to the state.

Unknown fields of a record are ignored when it is read and stay in the journal, which is never rewritten. A
record of an older version goes through its upcasters one version at a time. What cannot be read raises
`EventUnreadable`, except for names in the class's ``ignore_events``, which read as None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from sharding_app.errors import BadCall, DeclarationError, EventUnreadable
from sharding_app.model.encoding import Exact, json_text
from sharding_app.model.event import EventSpec, event_spec
from sharding_app.quoting import told, told_reading

Apply = Callable[[Any, Any], None]

FINISHED = "?finished"
"""Stands in the journal where a command ended that had stored its last event before: its reply is kept there, for a
retry. It is no event of the user's (no name of one looks like it) and changes nothing."""


class Happening(NamedTuple):
    """One event class as `persist` needs it."""

    name: str
    version: int
    encode: Callable[[Any], bytes]
    apply: Apply


class EventCodec:
    """The events that one entity type applies."""

    def __init__(self, what: str, appliers: dict[type, Apply], ignored: frozenset[str]) -> None:
        self._what = what
        self._appliers = appliers
        self._ignored = ignored
        self._specs: dict[str, EventSpec] = {}
        for cls in appliers:
            self._add(cls)
        #: By class; filled as the classes are first seen.
        self.happenings: dict[type, Happening] = {}
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

    def happening(self, event: object) -> Happening:
        """How that event is stored and applied, or `BadCall` if nothing applies it."""
        cls = type(event)
        found = self.happenings.get(cls)
        if found is not None:
            return found
        spec = event_spec(cls)
        if spec is None:
            raise BadCall(
                f"{self._what}.persist() takes events, and {cls.__qualname__} is not decorated with @event"
            )
        for base in cls.__mro__:
            if base in self._appliers:
                self._add(cls)
                codec = Exact(spec.resolve(), f"{self._what}: event {spec.name}")
                made = Happening(spec.name, spec.version, codec.encode, self._appliers[base])
                self.happenings[cls] = made
                return made
        raise BadCall(
            f"nothing in {self._what} applies {cls.__qualname__}: add a method with"
            f" @applies({cls.__qualname__})"
        )

    def encode(self, event: object) -> tuple[str, int, bytes]:
        """The record of an event: name, version, JSON."""
        found = self.happening(event)
        return found.name, found.version, found.encode(event)

    def decode(self, name: str, version: int, data: bytes | str) -> Any:
        """The event of a record; None for one that the class ignores."""
        read = self._readers.get((name, version))
        if read is None:
            read = self._readers[name, version] = self._reader(name, version)
        try:
            return read(data)
        except EventUnreadable:
            raise
        except Exception as error:
            raise EventUnreadable(
                f"{self._what}: an event {name!r} of version {version} cannot be read: {told_reading(error)}",
                params={"event": name, "version": version},
            ) from error

    def apply(self, obj: Any, event: object) -> None:
        """Change the state of `obj` by one event."""
        self.happening(event).apply(obj, event)

    def replay(self, obj: Any, records: Iterable[tuple[str, int, bytes | str]], *, first: int = 1) -> int:
        """Apply stored records in order; how many there were. Names the one that fails, with its number."""
        decode, happenings, number = self.decode, self.happenings, first
        for name, version, data in records:
            try:
                event = decode(name, version, data)
                if event is not None:
                    found = happenings.get(type(event)) or self.happening(event)
                    found.apply(obj, event)
            except EventUnreadable as error:
                raise EventUnreadable(
                    f"event {number}: {error.message}", params={**error.params, "number": number}
                ) from error
            except Exception as error:
                raise EventUnreadable(
                    f"event {number}: {self._what}: applying {name!r} of version {version} raised {told(error)}",
                    params={"event": name, "version": version, "number": number},
                ) from error
            number += 1
        return number - first

    def _reader(self, name: str, version: int) -> Callable[[Any], Any]:
        spec = self._specs.get(name) or self._subclass(name)
        if spec is not None and version == spec.version:
            return Exact(spec.resolve(), self._what).decode
        if name in self._ignored or name == FINISHED:
            return _nothing
        if spec is None:
            known = ", ".join(sorted(self._specs)) or "none"
            raise EventUnreadable(
                f"{self._what}: the journal holds an event {name!r}, which it does not know (known: {known})."
                " Restore the class, give it that name, or list it in ignore_events",
                params={"event": name, "version": version},
            )
        if version > spec.version:
            raise EventUnreadable(
                f"{self._what}: the journal holds {name!r} of version {version}, this code knows up to"
                f" {spec.version}: it was written by newer code",
                params={"event": name, "version": version},
            )
        return self._upcasting(spec, version)

    def _upcasting(self, spec: EventSpec, version: int) -> Callable[[Any], Any]:
        steps = []
        for step in range(version, spec.version):
            upcaster = spec.upcasters.get(step)
            if upcaster is None:
                raise EventUnreadable(
                    f"{self._what}: the journal holds {spec.name!r} of version {version}, now"
                    f" {spec.version}: add @upcasts({spec.cls.__qualname__}, from_version={step})",
                    params={"event": spec.name, "version": version},
                )
            steps.append(upcaster)
        final = Exact(spec.resolve(), self._what).decode
        read = msgspec.json.Decoder(dict[str, Any]).decode

        def upcast(data: bytes | str) -> Any:
            fields = read(data)
            for upcaster in steps:
                fields = upcaster(fields)
            return final(json_text(fields))

        return upcast

    def _subclass(self, name: str) -> EventSpec | None:
        """An event class that is not applied itself, but one of its bases is."""
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
    """What an ignored record reads as."""

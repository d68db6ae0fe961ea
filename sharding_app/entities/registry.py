"""All declared entity types and messages of this process, found by name.

A name counts once. The same class defined again (a reload, a test function that runs twice)
replaces the former one; another class of the same name is remembered in ``duplicates`` for the
system check, and the first one stays. Names need Django's app labels, so they are worked out at the
first look-up, not when a class is made.
"""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from sharding_app.errors import DeclarationError, InvalidCall

if TYPE_CHECKING:
    from sharding_app.entities.entity_type import EntityType
    from sharding_app.entities.messages import MessageSpec


class Named(Protocol):
    """A declaration: its class, and the name that it has on the wire."""

    @property
    def cls(self) -> type:
        """The user's class."""

    @property
    def name(self) -> str:
        """Its name, worked out at first use."""


N = TypeVar("N", bound=Named)


class Duplicate(NamedTuple):
    """Two classes that claim one name."""

    name: str
    kept: str
    refused: str


class Registry(Generic[N]):
    """Declarations by name."""

    def __init__(self, what: str, how: str) -> None:
        """`how` explains in an error how to give a declaration a name."""
        self._what = what
        self._how = how
        self._lock = threading.RLock()
        self._pending: list[N] = []
        self._types: dict[str, N] = {}
        self._duplicates: list[Duplicate] = []

    def add(self, declared: N) -> None:
        """Add a declaration; its name is worked out later."""
        with self._lock:
            self._pending.append(declared)

    def discard(self, declared: N) -> None:
        """Forget a type: its class is hosted under another name."""
        with self._lock:
            if declared in self._pending:
                self._pending.remove(declared)
            for name, known in list(self._types.items()):
                if known is declared:
                    del self._types[name]

    def get(self, name: str) -> N:
        """Return the type of that name, or raise `InvalidCall` with a suggestion."""
        found = self._types.get(name)
        if found is None or self._pending:
            found = self.all().get(name)
        if found is None:
            close = difflib.get_close_matches(name, self._types, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "is its app in INSTALLED_APPS?"
            raise InvalidCall(f"no {self._what} {name!r} is declared here: {hint}")
        return found

    def all(self) -> dict[str, N]:
        """Return all types by name, in the order of their declaration."""
        with self._lock:
            while self._pending:
                self._settle(self._pending[0])
                del self._pending[0]
            return dict(self._types)

    def check_own(self, declared: N) -> None:
        """Raise `DeclarationError` if the name means another class: a call would reach that one's
        entities.
        """
        known = self.all().get(declared.name)
        if known is not None and known.cls is not declared.cls and not _redefines(known.cls, declared.cls):
            raise DeclarationError(
                f"{_path(declared.cls)} and {_path(known.cls)} have the same name {declared.name!r}:"
                f" rename one of them, {self._how.format(declared.cls.__name__)}"
            )

    def duplicates(self) -> list[Duplicate]:
        """Return the names that more than one class claims: each is an error of the system
        check.
        """
        self.all()
        return list(self._duplicates)

    def _settle(self, new: N) -> None:
        known = self._types.get(new.name)
        if known is None or known.cls is new.cls or _redefines(new.cls, known.cls):
            self._types[new.name] = new
            return
        self._duplicates.append(Duplicate(new.name, _path(known.cls), _path(new.cls)))

    @contextlib.contextmanager
    def isolated(self) -> Iterator[Registry[N]]:
        """Forget declarations made inside the block: for tests that declare entities."""
        with self._lock:
            before = self._pending[:], dict(self._types), self._duplicates[:]
        try:
            yield self
        finally:
            with self._lock:
                self._pending, self._types, self._duplicates = before


def _redefines(new: type, known: type) -> bool:
    both_local = "<locals>" in new.__qualname__ and "<locals>" in known.__qualname__
    return new.__module__ == known.__module__ and (both_local or new.__qualname__ == known.__qualname__)


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


registry: Registry[EntityType] = Registry("entity type", "as in class {}(..., name='...')")
messages: Registry[MessageSpec] = Registry("message", "as in @message(name='...') class {}")

"""Locks of rows, which transactions hold to their end, and the order in which waiting ones get
them.

As on Postgres, a lock that conflicts with no holder is taken at once, past others that wait; a
conflicting one stands in line.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

Key = tuple[str | int, ...]
"""A table and the primary key of a row in it. The row may be absent: a transaction that inserts it
is waited for too."""


class Lock(NamedTuple):
    """A step of a transaction: lock a row to the end, and wait while others hold it. A `shared`
    lock is compatible with other shared ones. One that is not `kept` only waits until it could have
    the row, as an insert does that finds another one of its key.
    """

    key: Key
    shared: bool = False
    kept: bool = True


class Owner(Protocol):
    """A holder of locks, or a transaction that waits for one."""

    @property
    def name(self) -> str: ...

    def granted(self) -> None:
        """Take in that the awaited row is locked for this owner now."""
        ...


class Outsider:
    """A session that is not ours. It holds its locks until they are released."""

    def __init__(self, name: str) -> None:
        self.name = name

    def granted(self) -> None:
        """Do nothing: an outsider has no further steps."""


class _Row:
    __slots__ = ("holders", "waiting")

    def __init__(self) -> None:
        self.holders: dict[Owner, bool] = {}
        "Holders, and whether each shares it."
        self.waiting: dict[Owner, Lock] = {}
        "Waiting owners, in the order in which they came, and what each waits for."

    def free_for(self, owner: Owner, shared: bool) -> bool:
        return all(each is owner or (shared and beside) for each, beside in self.holders.items())

    def give(self, owner: Owner, shared: bool) -> None:
        self.holders[owner] = shared and self.holders.get(owner, True)


class RowLocks:
    def __init__(self) -> None:
        self._rows: dict[Key, _Row] = {}
        self._held: dict[Owner, dict[Key, None]] = {}
        "Rows that an owner holds or waits for."

    def take(self, owner: Owner, lock: Lock) -> bool:
        """Lock the row, or stand in line for it: False, and `granted` is called when the owner has
        it.
        """
        key, shared, kept = lock
        row = self._rows.get(key)
        free = row is None or row.free_for(owner, shared)
        if free and not kept:
            return True
        if row is None:
            row = self._rows[key] = _Row()
        self._held.setdefault(owner, {})[key] = None
        if free:
            row.give(owner, shared)
        else:
            row.waiting[owner] = lock
        return free

    def release(self, owner: Owner, *, changed: bool = False) -> None:
        """Release the rows that an owner holds or waits for.

        `changed`: the rows have new versions, for which the line is not kept: shared requests pass
        one that cannot go on.
        """
        granted: list[Owner] = []
        for key in self._held.pop(owner, ()):
            row = self._rows[key]
            row.holders.pop(owner, None)
            row.waiting.pop(owner, None)
            for each, lock in list(row.waiting.items()):
                if row.free_for(each, lock.shared):
                    del row.waiting[each]
                    if lock.kept:
                        row.give(each, lock.shared)
                    elif each not in row.holders:
                        self._held[each].pop(key)
                    granted.append(each)
                elif not changed:
                    break
            if not row.holders:
                del self._rows[key]
        for each in granted:
            each.granted()

    def hold(self, key: Key, name: str) -> Outsider:
        """Let a session that is not ours lock a row, and return it, to be released."""
        outsider = Outsider(name)
        self.take(outsider, Lock(key))
        return outsider

    def holder(self, key: Key) -> str | None:
        """Return the name of the owner that keeps others from sharing a row."""
        row = self._rows.get(key)
        return (
            None
            if row is None
            else next((each.name for each, shared in row.holders.items() if not shared), None)
        )

    def is_held(self, key: Key) -> bool:
        """Whether an owner holds a row, or shares it."""
        return key in self._rows

    def waits(self, names: Iterable[str]) -> bool:
        """Tell whether one of these owners stands in line: for tests."""
        wanted = set(names)
        return any(each.name in wanted for row in self._rows.values() for each in row.waiting)

    def clear(self) -> None:
        """Forget all locks: their owners are gone."""
        self._rows.clear()
        self._held.clear()

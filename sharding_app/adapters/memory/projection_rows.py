"""The tables of projections and the numbers of transactions, with the rules of the server's SQL."""

from collections.abc import Iterable, Sequence
from typing import Any

from sharding_app.adapters.memory.sessions import Session
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.projection.requests import Change, Changes, Found, Held, Key, Position, PutFilled
from sharding_app.protocol.projection.slices import SLICES, slice_of
from sharding_app.protocol.projection.view import View


class Transactions:
    """Numbers of the transactions under way. The end of one's session ends it."""

    def __init__(self) -> None:
        self.next = 1
        self.running: dict[int, Session | None] = {}

    def begin(self, session: Session | None) -> int:
        """Return the number of the transaction of a session, a new one if it has none."""
        if session is not None:
            for xid, owner in self.running.items():
                if owner is session:
                    return xid
        xid, self.next = self.next, self.next + 1
        self.running[xid] = session
        return xid

    def end(self, session: Session | None) -> None:
        for xid in [xid for xid, owner in self.running.items() if owner is session]:
            del self.running[xid]

    def view(self) -> View:
        """Return what a statement sees that begins now."""
        return View(min(self.running, default=self.next), self.next, frozenset(self.running))


def key_of(name: str, journal: str) -> str:
    """Return the name under which a projection's positions in a journal stand."""
    return f"{name}\0{journal}" if journal else name


class ProjectionRows:
    """On the server of a further journal: copies of its own positions, by the names alone."""

    def __init__(self) -> None:
        self.followed: dict[int, None] = {}
        self.changes: list[Change] = []
        self.types: dict[str, tuple[int, ...]] = {}
        "The types of each projection."
        self.beginnings: dict[str, int] = {}
        "How often each projection has begun: for checks."
        self.positions: dict[str, dict[int, Position]] = {}
        "By projection, and by the first slice."
        self.moved_at: dict[tuple[str, int], float] = {}
        self.held: dict[tuple[str, Key], tuple[Held, float]] = {}
        "Entities that wait, and when they are tried again."
        self.filled: dict[str, list[PutFilled]] = {}
        self.began: dict[str, int] = {}
        """In the cluster's rows and in those of a further journal: the transaction there with which
        positions began. They are the same, or one of the servers has lost its last transactions."""
        self.secured: dict[tuple[str, int], int] = {}
        """In a further journal: the transaction that a turn has committed there before its
        position. In the cluster's rows: that of the position."""
        self.passed: dict[str, int] = {}
        "In a further journal: below this transaction copies have allowed deletions."
        self.paused: dict[str, None] = {}
        self.live: dict[str, None] = {}
        self.rows: dict[str, list[Any]] = {}
        "The rows of the application, in the order in which they were written."

    def register(self, name: str, types: Sequence[int], view: View) -> None:
        """Make a projection known, which begins with a fill."""
        if name not in self.types:
            self.followed.update(dict.fromkeys(types))
            self.types[name] = tuple(sorted(types))
            self.begin(name, view)

    def begin(self, name: str, view: View) -> None:
        self.beginnings[name] = self.beginnings.get(name, 0) + 1
        for key in [each for each in self.positions if each.startswith(f"{name}\0")]:
            self._forget(key)
        self.begin_in(name, name, view)
        self.rows[name] = []

    def begin_in(self, name: str, key: str, view: View, began: int = 0) -> None:
        """Let the positions of a projection in a journal begin with a fill."""
        self._forget(key)
        self.positions[key] = {0: Position(0, SLICES - 1, view, fill_type=self.types[name][0])}
        self.filled[key] = []
        if began:
            self.began[key] = began

    def _forget(self, key: str) -> None:
        self.positions.pop(key, None)
        self.filled.pop(key, None)
        self.began.pop(key, None)
        self.passed.pop(key, None)
        self.held = {of: held for of, held in self.held.items() if of[0] != key}
        self.secured = {of: xid for of, xid in self.secured.items() if of[0] != key}

    def note(self, xid: int, rows: Iterable[EventRow]) -> None:
        """Write down which events an append has stored."""
        spans: dict[Key, list[int]] = {}
        for row in rows:
            if row.type_id in self.followed:
                span = spans.setdefault((row.type_id, row.entity), [row.seq, row.seq])
                span[0], span[1] = min(span[0], row.seq), max(span[1], row.seq)
        self.changes += [
            Change(xid, *key, slice_of(key[1]), first, last) for key, (first, last) in spans.items()
        ]

    def note_erased(self, xid: int, type_id: int, entity: str, first: int) -> None:
        if type_id in self.followed:
            self.changes.append(Change(xid, type_id, entity, slice_of(entity), first, first, erased=True))

    def overlapping(self, name: str, first: int, last: int) -> list[Position]:
        found = self.positions.get(name, {}).values()
        return sorted(each for each in found if each.first <= last and each.last >= first)

    def unseen(
        self, name: str, first: int, last: int, types: Sequence[int], changes: Sequence[Change] | None = None
    ) -> list[Change]:
        """Return the changes that the positions have not seen, in the order of transactions."""
        positions = self.overlapping(name, first, last)
        found = [
            each
            for each in (self.changes if changes is None else changes)
            if each.type_id in types
            and first <= each.slice <= last
            and not any(own.first <= each.slice <= own.last and own.view.sees(each.xid) for own in positions)
        ]
        return sorted(found, key=lambda each: each.xid)

    def new(self, name: str, request: Changes, view: View, there: Sequence[Change] | None = None) -> Found:
        """Return a page of what is new, be it of the changes of a further journal."""
        written = self.changes if there is None else there
        changes = self.unseen(name, request.first, request.last, request.types, written)
        count, bound = 0, None
        for place, each in enumerate(changes):
            begins = place > 0 and changes[place - 1].xid != each.xid
            if begins and count >= request.limit:
                bound = each.xid
                changes = changes[:place]
                break
            count += each.last - each.first + 1
        oldest = min(
            (each.view.xmin for each in self.overlapping(name, request.first, request.last)), default=0
        )
        is_any = any(each.xid >= oldest for each in written)
        return Found(view, bound, changes, is_any)

    def may_trim(self, type_id: int, entity: str) -> int:
        """Return the number below which all projections have seen an entity's events."""
        bound = 2**63
        slice_ = slice_of(entity)
        for name, types in self.types.items():
            if type_id not in types:
                continue
            if any(each.is_filling for each in self.positions[name].values()):
                return 0
            unseen = self.unseen(name, slice_, slice_, (type_id,))
            bound = min([bound, *(each.first for each in unseen if each.entity == entity)])
            held = self.held.get((name, (type_id, entity)))
            if held is not None and held[0].until is None:
                bound = min(bound, held[0].next)
        return bound

    def tidy(self, name: str, journals: Sequence[str] = ("",)) -> None:
        """Forget what all positions have behind them."""
        self.tidy_changes(name)
        for journal in journals:
            key = key_of(name, journal)
            if key in self.positions:
                self._tidy_held(key)
        there = [
            self.positions[key_of(name, each)] for each in journals if key_of(name, each) in self.positions
        ]
        positions = [each for found in there for each in found.values()]
        if len(there) == len(journals) and not any(
            each.is_filling or each.fill_until is not None for each in positions
        ):
            for journal in journals:
                self.filled[key_of(name, journal)] = []
            self.live[name] = None

    def tidy_changes(self, name: str) -> None:
        """Forget the changes that all positions have behind them."""
        for type_id in self.types[name]:
            below = min(
                each.view.xmin
                for owner, types in self.types.items()
                if type_id in types
                for each in self.positions[owner].values()
            )
            self.changes = [each for each in self.changes if each.type_id != type_id or each.xid >= below]

    def _tidy_held(self, name: str) -> None:
        positions = self.positions[name].values()
        for key, (held, _) in list(self.held.items()):
            if key[0] == name and held.until is not None:
                own = next(each for each in positions if each.first <= held.slice <= each.last)
                if held.until <= own.view.xmin:
                    del self.held[key]

"""`ports.projections.Part` over the virtual server: a turn is one transaction, in steps between
which time passes.

Of a further journal, events and changes are read on its own server, and the turn's last step there
commits what a position rests on (`adapters.django.further_journals` has the rules).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.locks import Lock
from sharding_app.adapters.memory.projection_rows import key_of
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, MayNotEnd, ServerError
from sharding_app.adapters.memory.steps import Pause, Steps, at_once
from sharding_app.ports.projections import NotReady, Refused
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.projection.requests import (
    Changes,
    DropHeld,
    Feed,
    FillKey,
    Held,
    Key,
    Keys,
    Look,
    Position,
    PutFilled,
    PutHeld,
    ReadDue,
    ReadErased,
    ReadEvents,
    ReadFilled,
    ReadHeld,
    ReadKeys,
    Save,
    StoredEvent,
    Take,
    Taken,
    TellErased,
)
from sharding_app.protocol.projection.slices import slice_of, slices_of
from sharding_app.protocol.projection.turn import Limits, Outcome, turn
from sharding_app.protocol.projection.view import View

Handler = Callable[[Sequence[StoredEvent], Key | None, bool], "list[Any] | str"]
"""Called with events, or with the key of an erased entity, and whether a failure concerns it alone.
It returns the rows that it writes, or then the text of an error. Otherwise it raises
`HandlerFailed`."""

LOCK_SECONDS = 2.0
LIMITS = Limits()


class MemoryPart:
    def __init__(
        self,
        server: MemoryServer,
        name: str,
        types: Sequence[int],
        handler: Handler,
        client: str = "client",
        *,
        limits: Limits = LIMITS,
        erase: Callable[[list[Any], Key], list[Any]] = lambda rows, key: rows,
        journal: str = CLUSTERS_OWN,
        there: MemoryServer | None = None,
        journals: Sequence[str] = (CLUSTERS_OWN,),
    ) -> None:
        """`erase` takes the rows of an erased entity from those of the projection. `there`: the
        server of a further `journal`, whose events it handles.
        """
        self._server = server
        self._there = there or server
        self.journal = journal
        self.key = key_of(name, journal)
        self._journals = tuple(journals)
        self._tables = server.projections
        self.name = name
        self._types = tuple(types)
        self._handler = handler
        self._limits = limits
        self._erase = erase
        self._line = Connection(server, client, line="projection", lock_seconds=LOCK_SECONDS)

    async def turn(self, part: int, parts: int, *, careful: bool) -> Outcome:
        first, last = slices_of(part, parts)
        outcome: Outcome = await self._asked("projection", lambda: self.steps(first, last, careful=careful))
        return outcome

    async def tidy(self) -> None:
        await self._asked("projection", lambda: at_once(self.tidied))

    def tidied(self) -> None:
        """Delete it in the server."""
        if not self.journal:
            self._tables.tidy(self.name, self._journals)
        elif self.key in self._tables.positions:
            self.reach()
            self._copy()
            self._there.projections.tidy_changes(self.name)

    def reach(self) -> None:
        """Refuse to go on while the further journal does not answer."""
        if not self._there.up:
            raise ServerError("08006", f"the journal {self.journal!r} is down")

    def secure(self, firsts: Iterable[int]) -> int:
        """Commit a transaction in the further journal."""
        self.reach()
        xid = self._committed()
        for first in firsts:
            self._there.projections.secured[self.name, first] = xid
        self._confirm()
        return xid

    def _committed(self) -> int:
        transactions = self._there.transactions
        xid, transactions.next = transactions.next, transactions.next + 1
        return xid

    def _confirm(self) -> None:
        """Wait for the further journal's standby."""
        if self._there.standby.waited_for:
            raise ServerError("57014", f"the standby of the journal {self.journal!r} does not answer")

    def _copy(self) -> None:
        tables, there = self._tables, self._there.projections
        if self._server.standby.waited_for or there.began.get(self.name) != tables.began[self.key]:
            return
        positions = tables.positions[self.key]
        there.positions[self.name] = dict(positions)
        lowest = min(each.view.xmin for each in positions.values())
        there.passed[self.name] = max(there.passed.get(self.name, 0), lowest)
        there.held = {of: held for of, held in there.held.items() if of[0] != self.name}
        for (key, entity), held in tables.held.items():
            if key == self.key:
                there.held[self.name, entity] = held

    def _begin(self) -> None:
        """Let the positions in the further journal begin, if they have not yet."""
        if self.key in self._tables.positions:
            return
        self.reach()
        there = self._there.projections
        there.followed.update(dict.fromkeys(self._types))
        there.types[self.name] = tuple(sorted(self._types))
        view = self._there.transactions.view()
        began = self._committed()
        there.begin_in(self.name, self.name, view, began)
        self._confirm()
        self._tables.begin_in(self.name, self.key, view, began)

    def check(self, positions: Iterable[Position]) -> None:
        """Refuse positions that mean nothing in the further journal any more."""
        self.reach()
        there, tables = self._there.projections, self._tables
        lost = there.began.get(self.name) != tables.began[self.key]
        for each in positions:
            wanted = tables.secured.get((self.key, each.first), 0)
            lost = lost or there.secured.get((self.name, each.first), 0) < wanted
            lost = lost or there.passed.get(self.name, 0) > each.view.xmin
        if lost:
            raise Refused(
                f"the journal {self.journal!r} has lost transactions that {self.name} has handled, or the other way"
                " round: reset the projection"
            )

    async def close(self) -> None:
        self._line.close()

    async def _asked(self, kind: str, request: Callable[[], Steps[Any]]) -> Any:
        try:
            return await self._line.reach(kind, request)
        except (ConnectionLost, MayNotEnd, ServerError) as error:
            raise NotReady(str(error)) from error

    def steps(self, first: int, last: int, *, careful: bool = False) -> Steps[Outcome]:
        """Return the steps of a turn."""
        tables, server = self._tables, self._server
        tables.register(self.name, self._types, server.transactions.view())
        if self.journal and self.key not in tables.positions:
            yield Lock(("version", self.name), shared=True)
            self._begin()
        server.transactions.begin(server.serving)
        work = turn(first, last, self._types, self._limits, careful=careful)
        own = _Own(self)
        answer: Any = None
        outcome: Outcome | None = None
        while outcome is None:
            try:
                request = work.send(answer)
            except StopIteration as end:
                outcome = end.value
                continue
            if isinstance(request, Take):
                rows = tables.overlapping(self.key, request.first, request.last)
                for each in rows:
                    yield Lock(("position", self.key, each.first))
                answer = own.taken(request, [each.first for each in rows])
                if self.journal and answer.positions:  # none are left where a reset was waited for
                    self.check(answer.positions)
            else:
                yield Pause.WORK
                if self.journal:
                    own.reach()
                answer = own.answers[type(request)](request)
        yield Pause.COMMIT
        own.commit()
        return outcome


class _Own:
    """What one turn reads and has written, seen by itself alone until its commit."""

    def __init__(self, part: MemoryPart) -> None:
        self._part = part
        self._server = part._server
        self._there = part._there
        self._connected = part._there.identity
        self._tables = part._tables
        self._name = part.key
        self._secured = 0
        self._taken: list[int] = []
        self._held: dict[Key, Held | None] = {}
        self._filled: list[PutFilled] = []
        self._positions: list[Position] | None = None
        self._rows: list[Any] = []
        self._erased: list[tuple[int, Key]] = []
        self.answers: dict[type, Callable[[Any], Any]] = {
            Changes: self._changes,
            ReadHeld: self._read_held,
            ReadDue: self._due,
            PutHeld: lambda request: self._held.__setitem__(request.held.key, request.held),
            DropHeld: lambda request: self._held.__setitem__(request.key, None),
            ReadFilled: self._read_filled,
            PutFilled: self._filled.append,
            ReadKeys: self._keys,
            ReadEvents: self._events,
            ReadErased: self._read_erased,
            Look: lambda _: self._there.transactions.view(),
            Feed: self._feed,
            TellErased: self._tell_erased,
            Save: self._save,
        }

    def reach(self) -> None:
        """Refuse to go on where the further journal does not answer, or has been started anew: a
        turn has one connection to it.
        """
        self._part.reach()
        if self._there.identity != self._connected:
            raise ServerError("08006", f"the connection to the journal {self._part.journal!r} is lost")

    def taken(self, request: Take, seen: Sequence[int]) -> Taken:
        there = self._tables.positions.get(self._name, {})
        positions = [there[each] for each in seen if each in there]
        positions = [each for each in positions if each.first <= request.last and each.last >= request.first]
        self._taken = [each.first for each in positions]
        moved = self._tables.moved_at
        age = max(
            (self._server.now() - moved.get((self._name, each), 0.0) for each in self._taken), default=0.0
        )
        holds = any(name == self._name for name, _ in self._tables.held)
        return Taken(positions, self._part.name in self._tables.paused, holds, age)

    def commit(self) -> None:
        tables, name, now = self._tables, self._name, self._server.now()
        rows = tables.rows.setdefault(self._part.name, [])
        for place, key in self._erased:
            self._rows[:place] = self._part._erase(self._rows[:place], key)
            rows[:] = self._part._erase(rows, key)
        rows.extend(self._rows)
        for key, held in self._held.items():
            if held is None:
                tables.held.pop((name, key), None)
            else:
                tables.held[name, key] = held, now + held.delay
        tables.filled.setdefault(name, []).extend(self._filled)
        if self._positions is not None:
            there = tables.positions[name]
            for first in self._taken:
                there.pop(first, None)
                tables.secured.pop((name, first), None)
            for each in self._positions:
                there[each.first] = each
                tables.moved_at[name, each.first] = now
                if self._secured:
                    tables.secured[name, each.first] = self._secured

    def _changes(self, request: Changes) -> Any:
        there = self._there.projections.changes
        return self._tables.new(self._name, request, self._there.transactions.view(), there)

    def _waiting(self, key: Key) -> Held | None:
        if key in self._held:
            return self._held[key]
        found = self._tables.held.get((self._name, key))
        return None if found is None else found[0]

    def _read_held(self, request: ReadHeld) -> list[Held]:
        found = [self._waiting(key) for key in request.keys]
        return [each for each in found if each is not None]

    def _due(self, request: ReadDue) -> list[Held]:
        now = self._server.now()
        due = [
            held
            for (name, _), (held, at) in self._tables.held.items()
            if name == self._name
            and request.first <= held.slice <= request.last
            and held.until is None
            and not held.parked
            and at <= now
        ]
        return due[: request.limit]

    def _read_filled(self, request: ReadFilled) -> dict[Key, View]:
        found: dict[Key, View] = {}
        pages = sorted(
            self._tables.filled.get(self._name, ()),
            key=lambda each: (each.upto is None, (each.upto or "").encode()),
        )
        for change in request.changes:
            for page in pages:
                reaches = page.upto is None or page.upto.encode() >= change.entity.encode()
                if page.type_id == change.type_id and page.first <= change.slice <= page.last and reaches:
                    found[change.key] = page.view
                    break
        return found

    def _keys(self, request: ReadKeys) -> Keys:
        self._server.cluster.check_journals(self._server.identity.lineage)
        events, there = self._there.journal.events, self._lying(request.type_id)
        after = request.after.encode()
        ids = sorted(
            (
                entity.encode()
                for (owner, entity), found in events.items()
                if owner == request.type_id and found and there(entity)
            )
        )
        looked = [each.decode() for each in ids if each > after][: request.limit]
        keys = [
            FillKey(entity, slice_of(entity), min(found), max(found))
            for entity in looked
            if request.first <= slice_of(entity) <= request.last
            for found in [events[request.type_id, entity]]
        ]
        upto = looked[-1] if len(looked) == request.limit else None
        return Keys(self._there.transactions.view(), keys, upto)

    def _lying(self, type_id: int) -> Callable[[str], bool]:
        """Return which entities of a type lie in this journal: it may have copies of others."""
        rows, journal = self._server.cluster, self._part.journal
        names = [name for name, number in rows.type_ids.items() if number == type_id and name in rows.types]
        if not names:
            return lambda _: True
        numbering = rows.types[names[0]].numbering
        return lambda entity: rows.journals.get((names[0], numbering.shard_of(entity)), "") == journal

    def _events(self, request: ReadEvents) -> list[StoredEvent]:
        found: list[StoredEvent] = []
        for span in request.spans:
            events = self._there.journal.events.get(span.key, {})
            for seq in sorted(seq for seq in events if span.first <= seq <= span.last):
                if len(found) == request.limit:
                    return found
                row, at = events[seq]
                moment = self._there.moment(at)
                found.append(StoredEvent(*span.key, seq, row.name, row.version, row.payload, moment))
        return found

    def _read_erased(self, request: ReadErased) -> Any:
        there = self._there.projections.changes
        unseen = self._tables.unseen(self._name, request.first, request.last, request.types, there)
        return [each for each in unseen if each.erased and each.key in request.keys]

    def _feed(self, request: Feed) -> str | None:
        return self._handled(self._part._handler(request.events, None, request.careful))

    def _tell_erased(self, request: TellErased) -> str | None:
        answer = self._part._handler((), request.key, request.careful)
        if isinstance(answer, str):
            return answer
        self._erased.append((len(self._rows), request.key))
        return self._handled(answer)

    def _handled(self, answer: list[Any] | str) -> str | None:
        if isinstance(answer, str):
            return answer
        self._rows.extend(answer)
        return None

    def _save(self, request: Save) -> None:
        self._positions = list(request.positions)
        if self._part.journal:
            self._secured = self._part.secure(each.first for each in request.positions)

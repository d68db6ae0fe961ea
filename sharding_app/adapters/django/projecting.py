"""Turns of projections on Django's connection to the cluster's database: the rows of the
application, and the position, in one transaction.

A part has a thread of its own. A plain handler runs in it, inside `atomic` on the cluster's
database: what it writes there commits with the position or not at all. With rows on another
database the handlers' own transaction commits first, so after a crash in between they see events
again. An async handler runs on the node's event loop, and its turn waits for it.

For targets outside of the cluster's database a turn first sees to it that the server has
acknowledged all that was read, to a synchronous standby too. Inside, the turn's own commit comes
later in the log than all that it has read.

A part works with one journal, and its first fill with the entities that lie there: not with those
of which the journal has a copy alone, before or after their shard has moved. Of a further one,
turns read events and changes in its own database,
outside of the transaction, and have it acknowledge them before the transaction commits
(`further_journals`).
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import UTC
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from sharding_app.adapters.django import further_journals
from sharding_app.adapters.django.database import (
    FILTERED,
    commits,
    no_commits,
    run_query,
    second_to,
    secure,
    whereabouts,
)
from sharding_app.adapters.django.further_journals import Followed
from sharding_app.adapters.django.sealing import opened_events
from sharding_app.adapters.personal.vault import Vault
from sharding_app.adapters.postgres.connection import application_name, bounded_waits, notice_silence
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import Call, Projection, ProjectionType
from sharding_app.errors import ProjectionError
from sharding_app.ports.projections import HandlerFailed, NotReady
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.projection.requests import (
    Change,
    Changes,
    DropHeld,
    Feed,
    FillKey,
    Found,
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
    Request,
    Save,
    Span,
    StoredEvent,
    Take,
    Taken,
    TellErased,
)
from sharding_app.protocol.projection.slices import slices_of
from sharding_app.protocol.projection.turn import Limits, Outcome, Turn, turn
from sharding_app.protocol.projection.view import View
from sharding_app.redaction import told, traceable

logger = logging.getLogger("sharding.projection")

ROWS_AT_ONCE = 500
"""Most changes that one read takes. Changes of one transaction are never divided."""
PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of the events of one read, as they are stored, after the first event."""
TIDY_ROWS = 5000
IDLE_SECONDS = 60.0
"""The server ends a turn that has done nothing for this long: its process is frozen or gone. So a
turn waits for the server of a further journal no longer."""
SMALL_TURNS = 20
"""Turns after one that rested for too long, until they handle twice as many events again."""
MAX_ERROR_CHARS = 1000
_RESTED = "25P03"
_AGAIN = ("40001", "40P01", "55P03", _RESTED)
"""Conflicts with other transactions, which the next turn may not have; and the end of a turn that
rested for too long."""


class Facts:
    """A projection as the database knows it."""

    def __init__(self, number: int, type_ids: tuple[int, ...], types: dict[int, EntityType]) -> None:
        self.number = number
        self.type_ids = type_ids
        self.types = types
        self.began = 0
        "In a further journal: the transaction there with which the positions began."
        self.server = ""
        "The server of that journal."


def register(alias: str, projection: ProjectionType) -> Facts:
    """Make a version of a projection known, and have its types followed. Raises `NotReady` while
    a type is not known, or `ProjectionError`.
    """
    names = {each.name: each for each in projection.sources}
    with connections[alias].cursor() as cursor:
        found = {
            name: number for number, name in run_query(cursor, "projection_types", {"names": list(names)})
        }
        if missing := sorted(names.keys() - found.keys()):
            raise NotReady(f"{projection.name}: no node has hosted {', '.join(missing)} yet")
        types = {found[name]: each for name, each in names.items()}
        type_ids = sorted(types)
        name: dict[str, Any] = {"name": projection.title, "version": projection.version}
        # Two transactions: the snapshot from which the version begins must see all that was
        # committed before its types were followed.
        run_query(cursor, "projection_follow", {"types": type_ids, "wanted": True})
        rows = run_query(cursor, "projection_find", name)
        if not rows:
            cursor.execute(_text("projection_register"), name | {"types": type_ids})
            rows = run_query(cursor, "projection_find", name)
    if not rows:
        raise NotReady(f"{projection.name}: its types were just let go by the removal of another projection")
    number, known, _, _, server, here = rows[0]
    if server != here:
        raise ProjectionError(
            f"the positions of {projection.name} are numbers of transactions of another server ({server}, this is"
            f" {here}): a dump was restored, or pg_upgrade was run. After pg_upgrade the numbers are the same:"
            " accept the server. Otherwise reset the projection, which fills its rows anew",
            code="other_server",
        )
    if list(known) != type_ids:
        raise ProjectionError(
            f"{projection.name} follows other types than it did: give it another version, or reset it",
            code="sources_changed",
        )
    return Facts(number, tuple(type_ids), types)


def _text(name: str) -> str:
    return QUERIES[name].decode()


def _keep(connection: BaseDatabaseWrapper) -> None:
    """Keep a connection for this thread, whose next turn may be milliseconds away.

    One of Django's pool goes back to it after each turn: handlers need the pool too.
    """
    if not connection.settings_dict["OPTIONS"].get("pool"):
        connection.close_at = None
    raw: Any = connection.connection
    notice_silence(raw)


class DjangoPart:
    """`ports.projections.Part`: turns in a thread, on that thread's connection."""

    def __init__(
        self,
        alias: str,
        projection: ProjectionType,
        *,
        owner: str = "",
        limits: Limits | None = None,
        lock_timeout_seconds: float = 2.0,
        vault: Vault | None = None,
        journal: str = CLUSTERS_OWN,
        journals: Sequence[str] = (CLUSTERS_OWN,),
    ) -> None:
        """`journal`: the one whose events it handles, of all the `journals` of the cluster."""
        self.projection = projection
        self.vault = vault
        self.journal = journal
        self.there = journal or alias
        "The alias of the database in which the events lie."
        self._journals = list(journals)
        self._alias = alias
        self._limits = limits or Limits(chunk=projection.batch_size)
        self.tried_anew: set[tuple[int, int]] = set()
        "Slices in which entities are tried again that had an event unknown to other code."
        self._divisor = 1
        "Of the limits: a turn that rests for too long would be taken again and again, and in vain."
        self._small_turns = 0
        self._begin = {
            "name": application_name(owner, "projection"),
            "lock_timeout": f"{round(lock_timeout_seconds * 1000)}ms",
            "idle_timeout": f"{round(IDLE_SECONDS * 1000)}ms",
        }
        self._facts: Facts | None = None
        self._second: tuple[Any, BaseDatabaseWrapper] | None = None
        "The connection that secures, and the one that it stands beside."
        self.thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sharding-projection")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self.instance: Projection = projection.cls()

    async def turn(self, part: int, parts: int, *, careful: bool) -> Outcome:
        self._loop = asyncio.get_running_loop()
        first, last = slices_of(part, parts)
        outcome: Outcome = await self._run(lambda: self.take(first, last, careful=careful))
        return outcome

    async def tidy(self) -> None:
        await self._run(self.tidied)

    async def close(self) -> None:
        self._is_closed = True
        # Behind a turn under way, whose end is not waited for.
        self.thread.submit(self.leave)
        self.thread.shutdown(wait=False)

    def leave(self) -> None:
        """Close the connections of this thread, and the one beside them."""
        if self._second is not None:
            self._second[1].close()
            self._second = None
        connections.close_all()

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.thread, self._tended, work)

    def _tended(self, work: Callable[[], Any]) -> Any:
        """Do it on a connection that is whole, as Django does for a request."""
        connection = connections[self._alias]
        connection.close_if_unusable_or_obsolete()
        try:
            connection.ensure_connection()
            _keep(connection)
            if not self.journal:
                return work()
            self._reach_journal()
            raw: Any = connections[self.there].connection
            with bounded_waits(raw, IDLE_SECONDS):
                return work()
        except (DatabaseError, InterfaceError) as error:
            if getattr(error.__cause__, "sqlstate", None) == _RESTED and self._divisor < self._limits.events:
                self._divisor, self._small_turns = 2 * self._divisor, SMALL_TURNS
            # Of no handler. A journal that takes no writes, or lacks a table, stops its own turns:
            # another error would end those of all journals.
            raise NotReady(" ".join(str(error).split())) from error
        finally:
            for each in connections.all(initialized_only=True):
                each.close_if_unusable_or_obsolete()

    def _reach_journal(self) -> None:
        """Connect before a transaction of the cluster's database waits for it."""
        connection = connections[self.there]
        connection.close_if_unusable_or_obsolete()
        try:
            connection.ensure_connection()
        except (OperationalError, InterfaceError) as error:
            raise NotReady(f"the journal {self.journal!r}: {' '.join(str(error).split())}") from error
        _keep(connection)

    def facts(self) -> Facts:
        if self._facts is None:
            found = register(self._alias, self.projection)
            if self.journal:
                title, version = self.projection.title, self.projection.version
                followed = Followed(found.number, title, version, list(found.type_ids))
                found.server, found.began = further_journals.begin(self._alias, self.journal, followed)
            self._facts = found
        return self._facts

    def forget(self) -> None:
        """Look the projection up again: it was removed, or belongs to another server."""
        self._facts = None

    def _limits_now(self) -> Limits:
        """Return the limits of the next turn."""
        if self._divisor > 1:
            self._small_turns -= 1
            if self._small_turns < 0:
                self._divisor, self._small_turns = self._divisor // 2, SMALL_TURNS
        limits, by = self._limits, self._divisor
        return limits._replace(events=max(1, limits.events // by), chunk=max(1, limits.chunk // by))

    def take(self, first: int, last: int, *, careful: bool = False) -> Outcome:
        """Take a turn in this thread."""
        facts = self.facts()
        steps = turn(first, last, facts.type_ids, self._limits_now(), careful=careful)
        outcome: Outcome | None = None
        kept: list[bool] = []
        try:
            with (
                transaction.atomic(using=self._alias, durable=True),
                connections[self._alias].cursor() as cursor,
            ):
                transaction.on_commit(lambda: kept.append(True), using=self._alias)
                ((*_, filtered),) = run_query(cursor, "projection_begin", self._begin)
                if filtered:
                    raise NotReady(FILTERED.format(self._alias))
                shell = _Shell(self, facts, cursor, self._alias)
                with shell.beside():
                    outcome = shell.carried_out(steps)
                shell.settle()
                self.guard_hooks(self._alias)
        except Astray as error:
            further_journals.note_lost(self._alias, self.journal, facts.number)
            self.forget()
            raise ProjectionError(
                f"the positions of {self.projection.name} in the journal {self.journal!r} are not its own any more: {error}."
                " Reset the projection, which fills its rows anew",
                code="other_server",
            ) from error
        except DatabaseError as error:
            if outcome is None or isinstance(error, OperationalError):
                raise
            # A commit refuses what a constraint forbids that is looked at then.
            raise HandlerFailed(told(error)) from error
        except BaseException as error:
            if outcome is None:
                raise
            # Raised by a function that a handler has left for after the commit.
            if not kept:  # the commit of the rows, which are on another database, has failed
                raise HandlerFailed(told(error)) from error
            self._note_behind(error)
            return outcome
        self.tried_anew.add((first, last))
        if not shell.found_any:
            self.forget()
        return outcome

    def guard_hooks(self, alias: str) -> None:
        """Let no function of on_commit end more than itself: those behind it are of other events,
        and with rows on another database the position is not committed yet.
        """
        used: Any = connections[alias]
        used.run_on_commit = [
            (savepoints, functools.partial(self._behind, function), *rest)
            for savepoints, function, *rest in used.run_on_commit
        ]

    def _behind(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  (a sys.exit() of the user's too)
            self._note_behind(error)

    def _note_behind(self, error: BaseException) -> None:
        logger.error(
            "%s: a function of on_commit has failed, behind a turn that is kept", self.projection.name,
            exc_info=traceable(error), extra={"action": "projection_failed"},
        )  # fmt: skip

    def tidied(self) -> None:
        facts = self.facts()
        if self.journal:
            further_journals.forget_removed(self._alias, self.journal)
            further_journals.copy(self._alias, self.journal, facts.number)
        else:
            with connections[self._alias].cursor() as cursor:
                cursor.execute(_text("projection_tidy"), {"id": facts.number, "journals": self._journals})
        with connections[self.there].cursor() as cursor:
            for type_id in facts.type_ids:
                count = TIDY_ROWS
                while count == TIDY_ROWS:
                    params = {"type_id": type_id, "limit": TIDY_ROWS}
                    ((count,),) = run_query(cursor, "projection_tidy_changes", params)

    def secure(self) -> None:
        """Have all that was read acknowledged, by a commit of another connection.

        It is kept while that of the turns lasts: after a failover both are to be on one server. A
        further journal is in no transaction, so its own connection commits.
        """
        if self.journal:
            secure(connections[self.there])
            return
        own = connections[self._alias]
        kept, self._second = self._second, None
        if kept is not None and kept[0] is own.connection:
            second = kept[1]
        else:
            if kept is not None:
                kept[1].close()
            second = second_to(own)
        try:
            secure(second)
        except BaseException:
            second.close()
            raise
        self._second = own.connection, second

    def call(self, call: Call) -> None:
        """Call a handler: in this thread, or on the event loop if it is async."""
        handler = getattr(self.instance, call.method)(call.argument)
        if not self.projection.is_async:
            return
        result = _sent(handler)
        if self._loop is None:
            asyncio.run(result)
            return
        try:
            asyncio.run_coroutine_threadsafe(result, self._loop).result()
        except (RuntimeError, concurrent.futures.CancelledError) as error:
            result.close()
            handler.close()
            if self._is_closed and (
                self._loop.is_closed() or isinstance(error, concurrent.futures.CancelledError)
            ):
                raise NotReady("the node ends, and its handlers with it") from error
            raise


async def _sent(handler: Coroutine[Any, Any, None]) -> None:
    """Await an async handler. A sys.exit() in it becomes an error that does not end the loop."""
    try:
        await handler
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise  # the last one where it is closed in its middle
    except BaseException as error:
        raise RuntimeError(f"{type(error).__qualname__} was raised") from error


class Astray(Exception):
    """Positions in a further journal that mean nothing there any more."""


class _Shell:
    """Carries out what one turn asks."""

    def __init__(self, part: DjangoPart, facts: Facts, cursor: CursorWrapper, alias: str) -> None:
        self._part = part
        self._facts = facts
        self._cursor = cursor
        self._there = connections[part.there].cursor() if part.journal else cursor
        self._alias = alias
        self._positions: list[Position] = []
        "Those that were taken."
        self._is_secured = False
        self._knows_all = False
        "What is new was looked up: nothing that is younger is read."
        self._owes = False
        "Something was written that rests on a further journal, which has not acknowledged it."
        self.found_any = False
        self._answers: dict[type, Callable[[Any], Any]] = {
            Take: self._take,
            Changes: self._changes,
            ReadHeld: self._held,
            ReadDue: self._due,
            PutHeld: self._put_held,
            DropHeld: self._drop_held,
            ReadFilled: self._filled,
            PutFilled: self._put_filled,
            ReadKeys: self._keys,
            ReadEvents: self._events,
            ReadErased: self._erased,
            Look: self._look,
            Feed: self._feed,
            TellErased: self._tell_erased,
            Save: self._save,
        }

    def carried_out(self, steps: Turn) -> Outcome:
        """Do what the turn asks, and return its outcome."""
        answer: Any = None
        while True:
            try:
                request: Request = steps.send(answer)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            answer = self._answers[type(request)](request)

    @property
    def _is_outside(self) -> bool:
        projection = self._part.projection
        return projection.is_async or projection.database not in (None, self._alias)

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Open the transaction of the rows, if they are on another database."""
        database = self._part.projection.database
        if database in (None, self._alias):
            yield
        elif not commits(database):
            raise ProjectionError(no_commits(database), code="no_commits")
        else:
            with transaction.atomic(using=database, durable=True):
                yield
                self._part.guard_hooks(database)

    def settle(self) -> None:
        """Have a further journal acknowledge what the transaction rests on, before it commits."""
        if self._owes and self._part.journal:
            self._part.secure()

    def _rows(self, name: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        of = {"id": self._facts.number, "journal": self._part.journal}
        return run_query(self._cursor, name, params | of)

    def _rows_there(self, name: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Ask the journal's database."""
        return run_query(self._there, name, params)

    def _do(self, name: str, params: dict[str, Any]) -> None:
        self._owes = True
        of = {"id": self._facts.number, "journal": self._part.journal}
        self._cursor.execute(_text(name), params | of)

    def _take(self, request: Take) -> Taken:
        rows = self._rows("projection_take", request._asdict())
        # Another turn may have taken a position that was divided off while this one waited.
        while any(row[12] for row in rows):
            rows = self._rows("projection_take", request._asdict())
        if any(row[11] != list(self._facts.type_ids) for row in rows):
            self._part.forget()
            raise NotReady(f"{self._part.projection.name} was reset with other types")
        positions = [Position(row[0], row[1], View.parse(row[2]), *row[3:8]) for row in rows]
        self._positions = positions
        self.found_any = bool(rows)
        if self._part.journal and positions:
            self._check(positions, [row[13] for row in rows])
        if (request.first, request.last) not in self._part.tried_anew:
            # Behind the lock of the positions, in whose order an operator locks these rows too.
            of = {"id": self._facts.number, "journal": self._part.journal}
            self._cursor.execute(_text("projection_try_anew"), request._asdict() | of)
        age = max((row[8] for row in rows), default=0.0)
        return Taken(positions, any(row[9] for row in rows), any(row[10] for row in rows), age)

    def _check(self, positions: list[Position], secured: list[int | None]) -> None:
        facts = self._facts
        trouble = further_journals.check(
            self._there, facts.number, facts.began, facts.server, positions, secured
        )
        if trouble:
            raise Astray(trouble)

    def _given(self) -> dict[str, Any]:
        return {
            "firsts": [each.first for each in self._positions],
            "lasts": [each.last for each in self._positions],
            "positions": [str(each.view) for each in self._positions],
        }

    def _changes(self, request: Changes) -> Found:
        self._is_secured, self._knows_all = False, True
        rows = ROWS_AT_ONCE
        params = request._asdict() | {"types": list(request.types)} | self._given()
        while True:
            head, *found = self._rows_there("projection_changes", params | {"rows": rows})
            bound, _, view, _, count, kept, _ = head
            if count <= rows or kept:
                break
            rows *= 8  # one transaction has more rows than a read
        changes = sorted((Change(*row) for row in found), key=lambda each: each.xid)
        return Found(View.parse(view), bound, changes, count > 0)

    def _keys(self, request: ReadKeys) -> Keys:
        self._is_secured, self._knows_all = False, True
        head, *rows = self._rows_there("projection_keys", request._asdict())
        self._refuse_unread()
        # Behind the lock of the position: no shard of a type moves while a fill of it is under way.
        places = whereabouts(self._cursor, request.type_id)
        there = [row for row in rows if places.journal_of(row[0], row[5]) == self._part.journal]
        keys = sorted((FillKey(*row[:4]) for row in there), key=lambda each: each.entity.encode())
        return Keys(View.parse(head[4]), keys, head[0])

    def _refuse_unread(self) -> None:
        """Refuse to leave out entities of shards whose rows a failover may have lost: their events
        would pass for a copy.
        """
        for (unread,) in self._rows("journals_to_read", {}):
            if unread:
                raise NotReady(
                    f"it is not read yet which shards lie in the journals {', '.join(unread)}, since DATABASE has gone on in"
                    " another lineage"
                )

    def _held(self, request: ReadHeld) -> list[Held]:
        params = {"types": [each[0] for each in request.keys], "entities": [each[1] for each in request.keys]}
        return [Held(*row) for row in self._rows("projection_held", params)]

    def _due(self, request: ReadDue) -> list[Held]:
        return [Held(*row) for row in self._rows("projection_due", request._asdict())]

    def _put_held(self, request: PutHeld) -> None:
        held = request.held
        self._do("projection_put_held", held._asdict())
        if held.parked:
            logger.error(
                "%s: an entity is parked at its event %d, and its later events wait behind it: %s",
                self._part.projection.name, held.next, held.error, extra={"action": "projection_parked"},
            )  # fmt: skip

    def _drop_held(self, request: DropHeld) -> None:
        type_id, entity = request.key
        self._do("projection_drop_held", {"type_id": type_id, "entity": entity})

    def _put_filled(self, request: PutFilled) -> None:
        self._do("projection_put_filled", request._asdict() | {"view": str(request.view)})

    def _erased(self, request: ReadErased) -> list[Change]:
        params = {"types": list(request.types), "first": request.first, "last": request.last}
        wanted = set(request.keys)
        found = [Change(*row) for row in self._rows_there("projection_erased", params | self._given())]
        return [each for each in found if each.key in wanted]

    def _look(self, request: Look) -> View:
        return View.parse(self._rows_there("projection_look", {})[0][0])

    def _filled(self, request: ReadFilled) -> dict[Key, View]:
        keys = {each.key: each.slice for each in request.changes}
        params = {
            "types": [each[0] for each in keys],
            "entities": [each[1] for each in keys],
            "slices": list(keys.values()),
        }
        rows = self._rows("projection_filled", params)
        return {(type_id, entity): View.parse(view) for type_id, entity, view in rows if view is not None}

    def _events(self, request: ReadEvents) -> list[StoredEvent]:
        wanted: list[tuple[Span, int]] = []
        limit = request.limit
        for each in request.spans:
            if limit <= 0:
                break
            count = min(limit, each.last - each.first + 1)
            wanted.append((each, count))
            limit -= count
        params = {
            "types": [each.type_id for each, _ in wanted],
            "entities": [each.entity for each, _ in wanted],
            "firsts": [each.first for each, _ in wanted],
            "lasts": [each.last for each, _ in wanted],
            "limits": [count for _, count in wanted],
            "bytes": PAGE_BYTES,
        }
        if not self._knows_all:
            self._is_secured = False
        rows = self._rows_there("projection_events", params)
        events = [
            StoredEvent(type_id, entity, seq, name, version, payload.encode(), at.replace(tzinfo=UTC))
            for type_id, entity, seq, name, version, payload, at in rows
        ]
        return opened_events(self._cursor, self._part.vault, events)

    def _feed(self, request: Feed) -> str | None:
        def feed() -> None:
            for call in self._part.projection.calls(request.events, self._facts.types):
                self._part.call(call)

        return self._handled(feed, request.careful)

    def _tell_erased(self, request: TellErased) -> str | None:
        type_id, entity = request.key
        call = self._part.projection.erased(self._facts.types[type_id], entity)
        if call is None:
            return None
        told_once = call
        return self._handled(lambda: self._part.call(told_once), request.careful)

    def _handled(self, work: Callable[[], None], careful: bool) -> str | None:
        self._owes = True
        if self._is_outside and not self._is_secured:
            self._part.secure()
            self._is_secured = True
        database = self._part.projection.database or self._alias
        try:
            if self._part.projection.is_async:
                work()
            elif careful:
                with transaction.atomic(using=database):
                    work()
                    _check(connections[database])
                    if connections[database].vendor == "postgresql":
                        # Not at the commit, which tells no event.
                        connections[database].check_constraints()
            else:
                work()
                _check(connections[database])
        except NotReady:
            raise
        except BaseException as error:  # a sys.exit() too, which would end the node's loop on its way
            if _is_about_the_server(error, connections[self._alias], connections[database]):
                raise
            if not careful:
                raise HandlerFailed(told(error)) from error
            logger.warning(
                "%s: a handler has failed", self._part.projection.name, exc_info=traceable(error),
                extra={"action": "projection_failed"},
            )  # fmt: skip
            # The column takes neither of them.
            text = told(error).encode(errors="backslashreplace").decode().replace("\0", "")
            return text[:MAX_ERROR_CHARS]
        return None

    def _save(self, request: Save) -> None:
        positions = request.positions
        firsts = [each.first for each in positions]
        if gone := sorted({each.first for each in self._positions} - set(firsts)):
            self._do("projection_drop_positions", {"firsts": gone})
        params = {
            "firsts": firsts,
            "lasts": [each.last for each in positions],
            "positions": [str(each.view) for each in positions],
            "turns": [each.turn for each in positions],
            "events": [each.events for each in positions],
            "fill_types": [each.fill_type for each in positions],
            "fill_afters": [each.fill_after for each in positions],
            "fill_untils": [each.fill_until for each in positions],
            "secured": None,
        }
        if self._part.journal:
            params["secured"] = further_journals.secure(self._there, self._facts.number, firsts)
        self._do("projection_save", params)
        # It is the last of a turn: nothing is read behind it.
        self._owes = False


def _check(used: BaseDatabaseWrapper) -> None:
    """Raise an error if a handler has broken its transaction, and has returned all the same: all
    that it has written would be gone without a word.
    """
    status = getattr(getattr(used.connection, "info", None), "transaction_status", None)
    if used.needs_rollback or getattr(status, "name", "") == "INERROR":
        raise transaction.TransactionManagementError(
            "the handler has caught an error of the database, which has ended its transaction: put the statement that may"
            " fail into transaction.atomic(), inside the try"
        )


def _is_about_the_server(error: BaseException, *used: BaseDatabaseWrapper) -> bool:
    """Whether it was no mistake of the handler: a lost connection, or a conflict with another
    transaction.
    """
    if not isinstance(error, DatabaseError | InterfaceError):
        return False
    if getattr(error.__cause__, "sqlstate", None) in _AGAIN:
        return True
    return any(map(_is_lost, used))


def _is_lost(used: BaseDatabaseWrapper) -> bool:
    """Whether a connection is lost. Only psycopg's says so by itself, and rows may lie in another
    kind of database.
    """
    if used.connection is None:
        return True
    closed = getattr(used.connection, "closed", None)
    return not used.is_usable() if closed is None else bool(closed)

"""What a process tells and asks of projections, by their rows: waiting for them, and an operator's
orders. Each is one short transaction on Django's connection to the cluster's database, except for
the reset of rows that are elsewhere.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync, sync_to_async
from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction
from django.db.backends.utils import CursorWrapper

from sharding_app.adapters.django import further_journals as there
from sharding_app.adapters.django.database import (
    bounded_reads,
    further_journals,
    journal_alias,
    run_query,
    second_to,
    soon_connected,
)
from sharding_app.adapters.django.further_journals import let_types_go
from sharding_app.adapters.django.outside import place_of
from sharding_app.adapters.postgres.failed_database import of_database
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.entities.projections import Projection, ProjectionType, projections
from sharding_app.errors import AskTimeout, ProjectionError, Unavailable
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.projection.slices import SLICES, slice_of
from sharding_app.redaction import told

logger = logging.getLogger("sharding.projection")

FIRST_PAUSE_SECONDS = 0.002
LAST_PAUSE_SECONDS = 0.1
"""Between two looks of a process that waits for a projection."""
_RESETS = "SELECT pg_try_advisory_xact_lock(hashtext('sharding_projection/reset'), %s)"
_ORDERS = "SELECT pg_try_advisory_xact_lock_shared(hashtext('sharding_projection/reset'), %s)"
_LOCK_NOT_AVAILABLE = "55P03"
COUNTED = 1000
"""Most changes that are counted behind each position, and most entities that wait there."""


class PartStatus(NamedTuple):
    """How far a projection has come with the entities of a range of slices."""

    first_slice: int
    last_slice: int
    events: int
    "Events that were handled, ever."
    is_filling: bool
    fill_after: str
    "The last entity that the fill has handled."
    at: datetime
    "When the position was last moved."
    behind_events: int
    behind_more: bool
    "There are more than were counted."
    behind_seconds: float
    "The age of the oldest event that is not handled, waiting entities aside."
    waiting: int
    "Entities that wait after a failure."
    parked: int
    "Those of them that wait for an operator."
    journal: str = ""
    "The alias of the journal's database; empty: the cluster's own."
    trouble: str = ""
    "Why it is not known what is behind it, or why it does not go on."


class ProjectionStatus(NamedTuple):
    """A version of a projection as its rows tell."""

    name: str
    version: int
    live: bool
    "Its rows are complete, and no later version has taken its place."
    paused: bool
    is_of_this_server: bool
    parts: list[PartStatus]


class HeldEntity(NamedTuple):
    """An entity that waits in a projection, since one of its events has failed."""

    type_name: str
    entity: str
    number: int
    "Of the event; 0: its erasure has failed."
    failures: int
    parked: bool
    error: str
    retry_at: datetime
    at: datetime
    journal: str = ""


class _Place(NamedTuple):
    """The positions of a version in a further journal, and which they are of its parts."""

    server: str | None
    types: list[int]
    parts: list[PartStatus]
    views: list[str]
    lost: bool


@contextmanager
def _reached(journal: str) -> Iterator[str]:
    with soon_connected(journal) as connection:
        yield connection.alias


def status(
    name: str | None = None,
    most: int = COUNTED,
    reached: Callable[[str], AbstractContextManager[str]] = _reached,
) -> list[ProjectionStatus]:
    """Return what is known of all projections, or of all versions of one. Counts of each part end
    at `most`. `reached` gives the alias of a further journal for a read of it.
    """
    found: dict[int, ProjectionStatus] = {}
    places: dict[tuple[str, int], _Place] = {}
    for number, *row in _rows("projection_status", {"name": name, "most": most}):
        if number not in found:
            found[number] = ProjectionStatus(row[0], row[1], row[2], row[3], row[4], [])
        part = PartStatus(*row[5:17])
        if part.journal:
            view, types, server, lost = row[17:]
            place = places.setdefault((part.journal, number), _Place(server, types, [], [], lost))
            place.parts.append(part)
            place.views.append(view)
        else:
            found[number].parts.append(part)
    down: dict[str, str] = {}
    for (journal, number), place in places.items():
        parts, is_its_server = _behind(journal, place, most, down, reached)
        found[number].parts.extend(parts)
        if not is_its_server:
            found[number] = found[number]._replace(is_of_this_server=False)
    return list(found.values())


def _behind(
    journal: str,
    place: _Place,
    most: int,
    down: dict[str, str],
    reached: Callable[[str], AbstractContextManager[str]],
) -> tuple[list[PartStatus], bool]:
    """Return parts with what is behind them in a further journal, and whether its server is the
    one that they are of.
    """
    given = {
        "firsts": [each.first_slice for each in place.parts],
        "lasts": [each.last_slice for each in place.parts],
        "positions": place.views,
        "types": place.types,
        "most": most,
    }
    rows: list[tuple[Any, ...]] = []
    if journal not in down and journal not in connections:
        down[journal] = "DATABASES has no such alias here"
    if journal not in down:
        try:
            with reached(journal) as alias, bounded_reads(alias), connections[alias].cursor() as cursor:
                rows = run_query(cursor, "projection_behind", given)
        except DatabaseError as error:
            down[journal] = told(error)
    if journal in down:
        return [each._replace(trouble=down[journal]) for each in place.parts], True
    counts = {row[1]: row[2:] for row in rows}
    parts = []
    for each in place.parts:
        events, more, seconds = counts[each.first_slice]
        parts.append(each._replace(behind_events=events, behind_more=more, behind_seconds=seconds))
    return parts, not place.lost and all(row[0] == place.server for row in rows)


def held(name: str, version: int, limit: int = 100) -> list[HeldEntity]:
    """Return the entities that wait after a failure, the parked ones first."""
    rows = _rows("projection_waiting", {"name": name, "version": version, "limit": limit})
    return [HeldEntity(*row) for row in rows]


def pause(name: str, version: int) -> None:
    """Let no turn begin. One under way is carried through."""
    _order_paused(name, version, paused=True)


def resume(name: str, version: int) -> None:
    """Let it go on after `pause`, within its next poll."""
    _order_paused(name, version, paused=False)


def _order_paused(name: str, version: int, *, paused: bool) -> None:
    """Pause it or let it go on. Raises ProjectionError while a reset holds it."""
    alias = journal_alias()
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        rows = run_query(cursor, "projection_find", {"name": name, "version": version})
        _keep_away(cursor, _ORDERS, _known(name, version, rows))
        _set_paused(name, version, paused=paused)


def _set_paused(name: str, version: int, *, paused: bool) -> None:
    _known(name, version, _rows("projection_pause", {"name": name, "version": version, "paused": paused}))


def _keep_away(cursor: CursorWrapper, lock: str, number: int) -> None:
    """Keep a reset of rows that are elsewhere away, to the end of the transaction, or raise
    ProjectionError.
    """
    cursor.execute(lock, [number])
    if not cursor.fetchall()[0][0]:
        raise ProjectionError(
            "the projection is being reset by another process, and is paused until its rows are cleared",
            code="being_reset",
        )


@contextmanager
def _alone(name: str, version: int) -> Iterator[None]:
    """Let no other order pause, resume, remove or reset a version, beyond the commits of this one.

    Two resets at once would let turns begin while one of them still clears the rows.
    """
    number = _known(name, version, _rows("projection_find", {"name": name, "version": version}))
    own = connections[journal_alias()]
    if own.in_atomic_block:
        # A test's own transaction: a reset refuses any other. It has the locks of the test's
        # former orders.
        with own.cursor() as cursor:
            _keep_away(cursor, _RESETS, number)
        yield
        return
    second = second_to(own)
    try:
        # The lock is the transaction's, so that a pooler keeps it too. It holds no snapshot.
        second.set_autocommit(False)
        with second.cursor() as cursor:
            cursor.execute("SELECT set_config('idle_in_transaction_session_timeout', '0', true)")
            _keep_away(cursor, _RESETS, number)
            yield
    finally:
        # The server notices a closed connection a little later. The next order may come at once.
        with suppress(DatabaseError, InterfaceError):
            second.rollback()
        second.close()


def retry(name: str, version: int, type_name: str, entity: str) -> bool:
    """Try an entity again that waits. False: it does not."""
    return _let_go_on(name, version, type_name, entity, None)


def skip(name: str, version: int, type_name: str, entity: str, number: int) -> bool:
    """Leave out the event at which an entity waits, and go on behind it. False: it does not wait
    at that event.
    """
    return _let_go_on(name, version, type_name, entity, number)


def _let_go_on(name: str, version: int, type_name: str, entity: str, number: int | None) -> bool:
    params = {"name": name, "version": version, "type": type_name, "entity": entity, "number": number}
    # A turn under way may be trying the entity again: it would write its own outcome over this.
    with transaction.atomic(using=journal_alias()):
        _hold_position(name, version, type_name, entity)
        return bool(_rows("projection_retry", params))


def _hold_position(name: str, version: int, type_name: str, entity: str) -> None:
    """Lock the position of an entity that waits to the end of the transaction.

    A statement that has waited for a turn does not see the position that this turn has divided off.
    So it is repeated until it finds one, as often as the slices can be divided in two.
    """
    params = {"name": name, "version": version, "type": type_name, "entity": entity}
    params["slice"] = slice_of(entity)
    for _ in range(SLICES.bit_length()):
        if _rows("projection_lock_slice", params):
            return


def reset(
    name: str, version: int, *, beside: Callable[[], None] | None = None, is_bounded: bool = False
) -> None:
    """Clear the rows of a version with its `clear()`, and fill them anew.

    On the cluster's database this is one transaction: readers see the old rows until it commits,
    and then a fill under way. Positions in further journals are forgotten, and begin anew with the
    next turns there. Rows that are elsewhere are cleared by a commit of their own. The positions
    begin anew before it, and are paused until it has come. So a process that dies in
    between leaves old rows, whose events come again, and never old positions of cleared rows.

    `beside` commits with the positions. `is_bounded`: no statement on the cluster's database takes
    longer than a page may.
    """
    projection = _declared(name, version)
    alias = journal_alias()
    database = projection.database or alias
    clear = _clear_of(projection)
    beside = beside or _nothing
    if database == alias and not projection.is_async:
        with _beginning_again(projection, alias, is_bounded=is_bounded):
            clear()
            beside()
        return
    with _alone(name, version):
        _reset_elsewhere(projection, database, clear, beside, is_bounded=is_bounded)


def _reset_elsewhere(
    projection: ProjectionType,
    database: str,
    clear: Callable[[], object],
    beside: Callable[[], None],
    *,
    is_bounded: bool,
) -> None:
    name, version, alias = projection.title, projection.version, journal_alias()
    of_rows = nullcontext() if projection.is_async else transaction.atomic(using=database, durable=True)
    has_begun = False
    try:
        if not projection.is_async:
            with of_database(database):
                connections[database].ensure_connection()
        with of_rows:
            with _beginning_again(projection, alias, is_bounded=is_bounded, is_elsewhere=True) as was_paused:
                if not projection.is_async:
                    with of_database(database):
                        clear()
                beside()
            has_begun = True
            if projection.is_async:
                clear()
    except Exception as error:
        if not has_begun:
            raise
        raise ProjectionError(
            f"the rows of {projection.name} could not be cleared ({told(error)}). Its positions have begun anew, and are"
            " paused: reset it again",
            code="not_cleared",
        ) from error
    if not was_paused:
        _set_paused(name, version, paused=False)


@contextmanager
def _beginning_again(
    projection: ProjectionType, alias: str, *, is_bounded: bool, is_elsewhere: bool = False
) -> Iterator[bool]:
    """Hold the positions of a version back, and let them begin anew; say whether it is paused."""
    name, version = projection.title, projection.version
    with (
        transaction.atomic(using=alias, durable=is_elsewhere),
        bounded_reads(alias, has_other_rows=True) if is_bounded else nullcontext(),
        connections[alias].cursor() as cursor,
    ):
        rows = run_query(cursor, "projection_find", {"name": name, "version": version})
        number = _known(name, version, rows)
        names = [each.name for each in projection.sources]
        types = sorted(row[0] for row in run_query(cursor, "projection_types", {"names": names}))
        with _behind_appends():
            run_query(cursor, "projection_follow", {"types": types, "wanted": True})
        _hold_positions(cursor, number)
        yield bool(rows[0][2])
        cursor.execute(_text("projection_forget"), {"id": number})
        cursor.execute(_text("projection_begin_again"), {"id": number, "types": types})
        with _behind_appends():
            let_types_go(cursor, sorted(set(rows[0][1]) - set(types)))
        if is_elsewhere:
            _set_paused(name, version, paused=True)


@contextmanager
def _behind_appends() -> Iterator[None]:
    """Say of a wait for rows that was given up what held them. Whether a type is followed changes
    behind the appends under way, and those behind it wait: so that does not wait for long.
    """
    try:
        yield
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        raise ProjectionError(
            "a transaction has held rows of the types, or of their shards, for longer than 2 s: a long append, a move of"
            " shards, or a session that is idle in its transaction. Nothing is changed: try again, and see the waits for"
            " locks on the dashboard's page Database"
        ) from error


def _hold_positions(cursor: CursorWrapper, number: int) -> None:
    """Lock a version and all its positions to the end of the transaction. Raises ProjectionError
    where another order has removed it meanwhile.

    A statement that has waited for a turn does not see a position that this turn has divided off,
    and that another turn may have taken by then. So it is repeated until it finds no more: a
    position is divided only by a turn that holds it.
    """
    # Positions in a further journal may be about to begin. One that is removed may be made again
    # by a node, with other positions: its rows must not be cleared under these.
    if not run_query(cursor, "projection_lock_version", {"id": number}):
        raise ProjectionError("the projection was just removed", code="unknown_projection")
    held, found = None, run_query(cursor, "projection_lock", {"id": number})
    while found != held:
        held, found = found, run_query(cursor, "projection_lock", {"id": number})


def _clear_of(projection: ProjectionType) -> Callable[[], object]:
    instance = projection.cls()
    if type(instance).clear is Projection.clear:
        instance.clear()  # tells that there is none, before anything is changed
    found: Callable[[], object] = instance.clear
    return async_to_sync(found) if inspect.iscoroutinefunction(found) else found


def _nothing() -> None:
    """Do nothing."""


def remove(name: str, version: int) -> None:
    """Forget a version that no code has any more. Its own rows are not touched. A type that no
    other projection follows is not followed any more.

    Further journals forget it after that has committed. One that cannot be reached keeps its
    changes until a worker of another projection looks there, or this is called again.
    """
    alias = journal_alias()
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        rows = run_query(cursor, "projection_find", {"name": name, "version": version})
        if not rows and _forget_in_journals():
            return
        number = _known(name, version, rows)
        params = {"id": number}
        _keep_away(cursor, _ORDERS, number)
        _hold_positions(cursor, number)
        cursor.execute(_text("projection_forget"), params)
        cursor.execute(_text("projection_remove"), params)
        with _behind_appends():
            let_types_go(cursor, rows[0][1])
        if further_journals():
            transaction.on_commit(_forget_in_journals, using=alias, robust=True)


def _forget_in_journals() -> bool:
    """Let further journals forget what was removed; return whether there was anything."""
    was_any = False
    for journal in further_journals():
        try:
            was_any = there.forget_removed(journal_alias(), journal) or was_any
        except DatabaseError as error:
            logger.warning(
                "the journal %r cannot be reached, and keeps changes for a projection that was removed: remove it again"
                " when it can (%s)", journal, told(error), extra={"action": "projection_left", "journal": journal},
            )  # fmt: skip
    return was_any


def accept_server(name: str, version: int) -> None:
    """Go on with positions of another server: pg_upgrade has kept the numbers of transactions.

    After a restored dump this would lose events.
    """
    number = _known(name, version, _rows("projection_accept", {"name": name, "version": version}))
    if not further_journals():
        return
    alias = journal_alias()
    rows = _rows("projection_find", {"name": name, "version": version})
    followed = there.Followed(number, name, version, sorted(rows[0][1]))
    for journal in further_journals():
        with _behind_appends():
            there.begin(alias, journal, followed, anew=True)


class DjangoControl:
    """`entities.projections.Control`."""

    async def caught_up(
        self, projection: ProjectionType, type_name: str, entity: str, number: int | None, timeout: float
    ) -> None:
        begun = time.monotonic()
        look = sync_to_async(_look)
        wanted = number if number is not None else await sync_to_async(_newest)(type_name, entity)
        for pause_seconds in _pauses():
            if await look(projection, type_name, entity, wanted):
                return
            _check_time(projection, entity, wanted, begun, timeout)
            await asyncio.sleep(pause_seconds)

    def caught_up_sync(
        self, projection: ProjectionType, type_name: str, entity: str, number: int | None, timeout: float
    ) -> None:
        begun = time.monotonic()
        wanted = number if number is not None else _newest(type_name, entity)
        for pause_seconds in _pauses():
            if _look(projection, type_name, entity, wanted):
                return
            _check_time(projection, entity, wanted, begun, timeout)
            time.sleep(pause_seconds)

    def live_version(self, title: str) -> int | None:
        rows = _rows("projection_live", {"name": title})
        return rows[0][0] if rows else None

    async def alive_version(self, title: str) -> int | None:
        return await sync_to_async(self.live_version)(title)

    def reset(self, projection: ProjectionType) -> None:
        reset(projection.title, projection.version)


def _pauses() -> Iterator[float]:
    pause_seconds = FIRST_PAUSE_SECONDS
    while True:
        yield pause_seconds
        pause_seconds = min(pause_seconds * 1.5, LAST_PAUSE_SECONDS)


def _newest(type_name: str, entity: str) -> int:
    """Return the number of an entity's last event that is committed."""
    params = {"type": type_name, "entity": entity}
    with connections[_journal_of(type_name, entity) or journal_alias()].cursor() as cursor:
        rows = run_query(cursor, "projection_newest", params)
    return int(rows[0][0]) if rows else 0


def _journal_of(type_name: str, entity: str) -> str:
    """Return the further journal in which an entity lies; empty: it is the cluster's own."""
    if not further_journals():
        return CLUSTERS_OWN
    with connections[journal_alias()].cursor() as cursor:
        try:
            type_id, shard = place_of(cursor, type_name, entity)
        except Unavailable:
            return CLUSTERS_OWN
        rows = run_query(cursor, "projection_journal_of", {"type_id": type_id, "shard": shard})
    return str(rows[0][0]) if rows else CLUSTERS_OWN


def _look(projection: ProjectionType, type_name: str, entity: str, number: int) -> bool:
    params = {"name": projection.title, "version": projection.version, "type": type_name}
    params |= {"entity": entity, "number": number, "slice": slice_of(entity)}
    journal = _journal_of(type_name, entity)
    rows = _seen_there(journal, params) if journal else _rows("projection_seen", params)
    if not rows:
        return False  # no node runs it yet
    is_seen, is_parked, error, is_paused = rows[0]
    if is_seen:
        return True
    if is_parked:
        raise ProjectionError(
            f"{projection.name} does not show {type_name} {entity!r} up to event {number}: one of its events has failed,"
            f" and waits for an operator ({error})",
            code="parked",
        )
    if is_paused:
        raise ProjectionError(f"{projection.name} is paused", code="paused")
    return False


def _seen_there(journal: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Answer as `projection_seen.sql` does, for an entity of a further journal."""
    rows = _rows("projection_place", params | {"journal": journal})
    if not rows:
        return []
    ((is_filled, view, following, goes_on, is_parked, error, is_paused),) = rows
    number = params["number"]
    is_seen = is_filled and (following is None or goes_on or following > number)
    if is_seen:
        # The position was read before: what is newer in the journal was not handled by it.
        with connections[journal].cursor() as cursor:
            is_seen = run_query(cursor, "projection_seen_there", params | {"position": view})[0][0]
    return [(is_seen, is_parked and following <= number, error, is_paused)]


def _check_time(projection: ProjectionType, entity: str, number: int, begun: float, timeout: float) -> None:
    if time.monotonic() - begun >= timeout:
        raise AskTimeout(
            f"{projection.name} did not show event {number} of {entity!r} within {timeout:g} s: is a node running,"
            " and has the projection come that far?"
        )


def _declared(name: str, version: int) -> ProjectionType:
    found = projections.all().get(f"{name}:{version}")
    if found is None:
        raise ProjectionError(
            f"this code has no projection {name} of version {version}", code="unknown_projection"
        )
    return found


def _known(name: str, version: int, rows: list[tuple[Any, ...]]) -> int:
    if not rows:
        raise ProjectionError(
            f"no node has run version {version} of a projection {name}", code="unknown_projection"
        )
    return int(rows[0][0])


def _text(name: str) -> str:
    return QUERIES[name].decode()


def _rows(name: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connections[journal_alias()].cursor() as cursor:
        return run_query(cursor, name, params)

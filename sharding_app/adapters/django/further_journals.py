"""What a projection keeps in the database of a further journal, and how that agrees with the rows
in the cluster's database.

Contract:

* The events and changes of a journal lie in its own database, and the position in the cluster's. It
  is a snapshot of the journal's server, and is committed with the rows of the application.
* Before a position is committed, the journal has committed a transaction of its own, behind all
  that the position has seen (`secure`). So a standby of the journal has all of it, or lacks that
  transaction. Then the journal has lost events that were handled, and its numbers of transactions
  come again: `check` refuses the position.
* Positions are copied into the journal's database after their commit (`copy`), never before. What
  is deleted there by these copies was passed. If the cluster's database is put back behind such a
  copy, changes may be gone that its position has yet to see: `check` refuses that too.
* Positions begin under the lock of the version's row, with a transaction of the journal that both
  databases note. A copy from before it comes too late, and changes nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import InternalError, connections, transaction
from django.db.backends.utils import CursorWrapper

from sharding_app.adapters.django import database
from sharding_app.adapters.django.database import FILTERED, run_query
from sharding_app.adapters.postgres.failed_database import of_database
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.within import Replication, watched
from sharding_app.errors import ProjectionError
from sharding_app.ports.projections import NotReady
from sharding_app.protocol.projection.requests import Position
from sharding_app.redaction import told

NUMBERS = ("ids", "names", "numbers", "wanted", "resized", "revisions")
HELD_COPIED = 1000
"""With more entities that wait, nothing of their types is deleted in the journal."""


class Followed(NamedTuple):
    """A version of a projection, as the cluster's database knows it."""

    number: int
    name: str
    version: int
    type_ids: list[int]
    "In their order."


def begin(alias: str, journal: str, followed: Followed, *, anew: bool = False) -> tuple[str, int]:
    """Let the positions of a version begin in a journal, if they have not yet. Return the journal's
    server, and the transaction there with which they did. Raises `NotReady`, ProjectionError.

    `anew`: they stay, and only what both databases have noted begins again.
    """
    key: dict[str, Any] = {"id": followed.number, "journal": journal}
    with connections[alias].cursor() as cursor:
        known = run_query(cursor, "projection_following", key)
    if known and not anew:
        return known[0][0], int(known[0][1])
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        rows = run_query(cursor, "projection_lock_version", key)
        if not rows or sorted(rows[0][0]) != followed.type_ids:
            raise NotReady(f"{followed.name} was just reset or removed")
        known = run_query(cursor, "projection_following", key)
        if known and not anew:
            return known[0][0], int(known[0][1])
        numbers = run_query(cursor, "projection_numbers", {"types": followed.type_ids})
        server, began, view = _begun_there(journal, followed, numbers)
        given = {"server": server, "began": began, "view": view, "types": followed.type_ids}
        cursor.execute(_text("projection_begin_journal"), key | given)
    return server, began


def _begun_there(journal: str, followed: Followed, numbers: list[tuple[Any, ...]]) -> tuple[str, int, str]:
    types = followed.type_ids
    of = {"id": followed.number, "name": followed.name, "version": followed.version, "types": types}
    given: dict[str, Any] = dict(zip(NUMBERS, map(list, zip(*numbers, strict=True)), strict=True))
    with of_database(journal), connections[journal].cursor() as cursor:
        try:
            run_query(cursor, "projection_know_types", given)
        except InternalError as error:
            raise ProjectionError(
                f"{told(error)}: the rows of {journal!r} are of another cluster, or of a time before the cluster's own"
                " were restored",
                code="other_server",
            ) from error
        # Two transactions: the snapshot from which the version begins must see all that was
        # committed before its types were followed.
        run_query(cursor, "projection_follow", {"types": types, "wanted": True})
        with transaction.atomic(using=journal):
            former = run_query(cursor, "projection_forget_there", of)
            rows = run_query(cursor, "projection_begin_there", of)
            let_types_go(cursor, sorted({number for (ids,) in former for number in ids} - set(types)))
    if not rows:
        raise NotReady(f"{followed.name}: its types were just let go in the journal {journal!r}")
    server, began, view = rows[0]
    return server, int(began), view


def forget_removed(alias: str, journal: str) -> bool:
    """Forget versions in a journal that the cluster's database has no more; return whether there
    was any.
    """
    with transaction.atomic(using=journal), connections[journal].cursor() as cursor:
        # First those that are there: a version is made in the cluster's database before.
        there = {number for (number,) in run_query(cursor, "projection_ids")}
        with connections[alias].cursor() as own:
            here = {number for (number,) in run_query(own, "projection_ids")}
        for number in sorted(there - here):
            gone = run_query(cursor, "projection_forget_there", {"id": number, "name": None, "version": None})
            let_types_go(cursor, sorted({each for (types,) in gone for each in types}))
    return bool(there - here)


def let_types_go(cursor: CursorWrapper, types: list[int]) -> None:
    """Follow those of these types no more that no projection follows."""
    if not types:
        return
    # A projection that is just being made holds the types' rows until it can be found.
    run_query(cursor, "projection_lock_types", {"types": types})
    left = [number for (number,) in run_query(cursor, "projection_unfollowed", {"types": types})]
    if left:
        run_query(cursor, "projection_follow", {"types": left, "wanted": False})
        cursor.execute(_text("projection_forget_changes"), {"types": left})


def check(
    cursor: CursorWrapper,
    number: int,
    began: int,
    server: str,
    positions: Sequence[Position],
    secured: Sequence[int | None],
) -> str:
    """Return why these positions mean nothing in the journal of the cursor, or nothing. Raises
    `NotReady` where events would be left out.
    """
    given = {
        "id": number,
        "firsts": [each.first for each in positions],
        "positions": [str(each.view) for each in positions],
        "secured": list(secured),
    }
    ((here, begun, is_all_there, has_all, filtered),) = run_query(cursor, "projection_check_there", given)
    if filtered:
        raise NotReady(FILTERED.format(cursor.db.alias))
    if here != server:
        return f"they are numbers of transactions of another server ({server}, this is {here})"
    if begun != began or not has_all:
        return "it has lost transactions that were handled: a failover without a synchronous standby, or a restore"
    if not is_all_there:
        return "it has deleted changes by later positions, which the cluster's database has lost"
    return ""


def secure(cursor: CursorWrapper, number: int, firsts: Sequence[int]) -> int:
    """Commit a transaction in the journal behind all that was read there. Return its number once a
    synchronous standby has it, also where an administrator cancels the wait.
    """
    found = Replication()
    with watched(cursor.db.connection, found):
        rows = run_query(cursor, "projection_secure_there", {"id": number, "firsts": list(firsts)})
    if found.cancelled:
        database.secure(cursor.db)
    return int(rows[0][0])


def copy(alias: str, journal: str, number: int) -> None:
    """Copy the committed positions of a projection into the journal's database."""
    with connections[alias].cursor() as cursor:
        key = {"id": number, "journal": journal, "most": HELD_COPIED}
        rows = run_query(cursor, "projection_to_copy", key)
        if not rows:
            return
    # The copy must not outlive them: a synchronous standby has them too.
    database.secure(connections[alias])
    began, firsts, lasts, positions, fill_types, types, entities, slices, nexts = rows[0]
    if len(types) > HELD_COPIED:
        fill_types = [types[0]] * len(firsts)
    given = {
        "id": number, "began": began, "firsts": firsts, "lasts": lasts, "positions": positions,
        "fill_types": fill_types, "types": types, "entities": entities, "slices": slices, "nexts": nexts,
    }  # fmt: skip
    with connections[journal].cursor() as cursor:
        run_query(cursor, "projection_copy_there", given)


def _text(name: str) -> str:
    return QUERIES[name].decode()


def note_lost(alias: str, journal: str, number: int) -> None:
    """Write down that positions in a journal mean nothing any more: the pages show it."""
    with connections[alias].cursor() as cursor:
        given: dict[str, Any] = {"id": number, "journal": journal}
        cursor.execute(_text("projection_lost"), given)

"""Erases a person: the key of the personal data, and the entities that are the person's own.

The key goes first, in one commit. From then on no ciphertext of it can be read, wherever it stands:
in journals, snapshots, messages, archives. Then the entities are erased one by one. An erasure that
was interrupted is finished by another call: what is gone is passed over.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from django.core.management.base import CommandError

from sharding_app.adapters.personal.sealing import NO_KEYS, NoKeys, answered, index_key
from sharding_app.adapters.personal.vault import mark_of, new_row
from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import ServerError
from sharding_app.adapters.postgres.errors import explain
from sharding_app.adapters.postgres.failed_database import failed_database
from sharding_app.adapters.postgres.further_journals import UnknownJournals, refuse_elsewhere
from sharding_app.adapters.postgres.subjects import Subjects
from sharding_app.entities import identifiers
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import registry
from sharding_app.errors import Unavailable, WrongContext
from sharding_app.operations.erasing import NotErased, Progress, count, erase
from sharding_app.ports.journal import Erasure
from sharding_app.settings.load import get_settings
from sharding_app.wiring import conninfo, further_ways, personal_vault

TIMEOUT_SECONDS = 30.0


INTERRUPTIONS = (ServerError, CommandError, NoKeys, NotErased, UnknownJournals)
"""After any of them the erasure is finished by another call."""


def reason(error: Exception) -> str:
    """Say in a sentence why an erasure did not end."""
    if not isinstance(error, ServerError):
        return f"{str(error).rstrip('.')}."
    alias = failed_database(error)
    return f"{f'the journal {alias!r}: ' if alias else ''}{explain(error)}."


class SubjectErasure(NamedTuple):
    """The result of an erasure, and what is left to do."""

    entities: dict[str, Erasure]
    "The person's own entities: the rows that were erased, by the name of their type."
    projections: tuple[str, ...]
    "Projections to rebuild: they follow types with personal data, and their tables are yours."
    in_memory: tuple[str, ...]
    "Types whose other entities may show personal data from their memory, until they start again."


def erase_subject(
    subject: str | int | UUID, *, by: str = "erase_subject", timeout: float = TIMEOUT_SECONDS
) -> SubjectErasure:
    """Erase a person for good: delete the key of the personal data, and the person's own entities.

    Own are entities of types with ``erased_with_subject = True`` whose id is the subject. `timeout`
    limits the seconds without progress of one entity. Call it again after an error: it goes on.
    Raises `Unavailable`.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise WrongContext(
            "erase_subject() blocks, and an event loop runs in this thread: await aerase_subject()"
        )
    try:
        return erased(conninfo(get_settings().lifeline_database), subject, by, timeout, lambda _: None)
    except INTERRUPTIONS as error:
        raise Unavailable(
            f"the person may be erased in part: {reason(error)} Call erase_subject() again"
        ) from error


async def aerase_subject(
    subject: str | int | UUID, *, by: str = "erase_subject", timeout: float = TIMEOUT_SECONDS
) -> SubjectErasure:
    """Do as `erase_subject`, from a coroutine."""
    return await asyncio.to_thread(erase_subject, subject, by=by, timeout=timeout)


def erased(
    where: Conninfo, subject: str | int | UUID, by: str, timeout: float, progress: Progress
) -> SubjectErasure:
    """Erase a person. Raises NoKeys, NotErased, CannotReach, UnknownJournals, psycopg.Error."""
    name = identifiers.entity_id(subject)
    further = further_ways(get_settings())
    refuse_elsewhere(where, further)
    with Subjects(where) as subjects:
        vault = personal_vault(get_settings())
        if vault is None:
            raise NoKeys(NO_KEYS)
        index = answered(index_key(vault), lambda ask: subjects.rows(ask.query, ask.params))
        mark = mark_of(index, name)
        subjects.rows("subject_erase", {"row": new_row(), "mark": mark})
        found = {each: erase(where, each, name, by, timeout, progress, further)[1] for each in own_types()}
        subjects.clean()  # last: it fails while another VACUUM holds the table
        events = sum(each.events for each in found.values())
        detail = f"{len([each for each in found.values() if each != Erasure()])} entities, {events} events, by {by}"
        subjects.rows("subject_finish", {"mark": mark, "detail": detail})
        subjects.secure()
    return SubjectErasure(found, to_rebuild(), tuple(each.name for each in _others()))


def counted_rows(
    where: Conninfo, subject: str | int | UUID, way: Callable[[Conninfo], Conninfo] = dict
) -> SubjectErasure:
    """Count the rows of the person's own entities, and erase nothing. `way` changes how each
    database is reached. Raises UnknownJournals, psycopg.Error.
    """
    name = identifiers.entity_id(subject)
    where = way(where)
    further = {alias: way(each) for alias, each in further_ways(get_settings()).items()}
    refuse_elsewhere(where, further)
    found = {each: count(where, each, name, further) for each in own_types()}
    return SubjectErasure(found, to_rebuild(), tuple(each.name for each in _others()))


def own_types() -> list[str]:
    """Return the types whose entities are persons."""
    return [each.name for each in _hosted() if each.cls.erased_with_subject]


def types_with_data() -> list[str]:
    """Return the types that have personal data."""
    return [each.name for each in _hosted() if each.holds_personal]


def to_rebuild() -> tuple[str, ...]:
    """Return the projections that follow a type with personal data."""
    return tuple(
        each.name
        for each in projections.all().values()
        if any(source.holds_personal for source in each.sources)
    )


def _others() -> list[EntityType]:
    return [each for each in _hosted() if not each.cls.erased_with_subject and each.holds_personal]


def _hosted() -> list[EntityType]:
    return [each for each in registry.all().values() if not each.proxy_only]

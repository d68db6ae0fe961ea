"""Erases one entity: through its home while that is alive, otherwise in the database."""

import asyncio
from collections.abc import Callable

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import NodesAlive, count_entity, erase_entity
from sharding_app.adapters.postgres.further_journals import NONE, Further
from sharding_app.adapters.postgres.left_copies import count_in_copies, erase_in_copies
from sharding_app.adapters.postgres.partitioning import CannotPartition, erase_in_copy, erase_in_former
from sharding_app.operations.connectivity import joined
from sharding_app.operations.diagnosis.read_journal import shard_by_id
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.messages import OperatorRequest, ReplyCode
from sharding_app.protocol.records import Member, TypeConfig
from sharding_app.runtime.node.process import Process
from sharding_app.wiring import new_loop

AGAIN_SECONDS = 0.2
ANSWER_SECONDS = 15.0
AGAIN = frozenset((ReplyCode.BUSY, ReplyCode.AWAY))
"""A home that answers so can be asked again in a moment."""
NO_ANSWER = (
    "Its node {} does not answer. The entity may have been erased or not: "
    "check with --dry-run, and try again."
)

Progress = Callable[[str], object]


class NotErased(Exception):
    """The text says why, and what to do."""


def erase(
    where: Conninfo,
    name: str,
    entity: str,
    by: str,
    timeout: float,
    progress: Progress,
    further: Further = NONE,
) -> tuple[str, Erasure]:
    """Erase an entity. Return the name of the home that has erased it, or "", and the rows.

    `timeout` limits the seconds without progress. Copies that its shard has left in former journals
    lose it too: all of these have to answer before anything is erased. So does the former table of
    a change of the layout that was interrupted, or its unfinished copy. Raises NotErased,
    CannotReach, JournalDown, UnknownJournals, psycopg.Error.
    """
    count_in_copies(where, further, name, entity)
    home = ""
    try:
        found = erase_entity(
            where, name, entity, by, lambda done: progress(f"{done.events} events erased"), further=further
        )
    except NodesAlive:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            home, found = runner.run(_at_home(name, entity, by, timeout, progress))
    # Behind the erasure: a shard that has moved meanwhile may have left a copy of the entity, and a
    # change of the layout its former table.
    found += erase_in_copies(where, further, name, entity)
    try:
        erase_in_former(where, further, name, entity)
        erase_in_copy(where, further, name, entity)
    except CannotPartition as error:
        raise NotErased(str(error)) from error
    return home, found


def count(where: Conninfo, name: str, entity: str, further: Further = NONE) -> Erasure:
    """Count the rows of an entity, where it lies and in copies that its shard has left. Raises
    UnknownJournals, JournalDown, psycopg.Error.
    """
    return count_entity(where, name, entity, further=further) + count_in_copies(where, further, name, entity)


async def _at_home(
    name: str, entity: str, by: str, timeout: float, progress: Progress
) -> tuple[str, Erasure]:
    """Have its home erase it; return the home's name and the counts."""
    loop = asyncio.get_running_loop()
    reached: tuple[ReplyCode, dict[str, int]] | None = None
    async with joined() as process:
        deadline = loop.time() + timeout
        shard = await _shard(process, name, entity)
        while True:
            home = await home_of(process, name, shard)
            if home is None:
                raise NotErased(
                    "Its rows belong to a shard of a live node that is not its home. Stop the cluster first: "
                    "manage.py sharding_shutdown --all"
                )
            request = OperatorRequest(0, "erase", name, shard, entity, by=by)
            answer = await process.queries.operate(home.incarnation, request, ANSWER_SECONDS)
            if answer is not None and answer.ok:
                counts = answer.counts
                return home.name, Erasure(
                    counts["events"],
                    counts["snapshots"],
                    counts["remembered"],
                    counts.get("messages", 0),
                )
            text = NO_ANSWER.format(home.name) if answer is None else answer.text
            state = None if answer is None else (answer.code, answer.counts)
            if state != reached:  # it gets on: the time limit is for one that does not
                deadline, reached = loop.time() + timeout, state
            if (answer is not None and answer.code not in AGAIN) or loop.time() >= deadline:
                raise NotErased(text)
            progress(text)
            await asyncio.sleep(AGAIN_SECONDS)


async def _shard(process: Process, name: str, entity: str) -> int:
    types: list[TypeConfig] = await process.ports.store.types()
    config = next(each for each in types if each.name == name)
    try:
        shard = shard_by_id(config, process.types.get(name), entity)
    except Exception as error:
        raise NotErased(f"The extractor of {name} fails for this id: {type(error).__qualname__}.") from error
    if shard is None:
        raise NotErased(
            f"The code of {name} is not installed here, so its shard is unknown. Run this command where "
            "the code is installed, or stop the cluster first: manage.py sharding_shutdown --all"
        )
    return shard


async def home_of(process: Process, name: str, shard: int) -> Member | None:
    """Return the node that is the shard's home now."""
    store = process.ports.store
    rows = await store.homes(name, [shard])
    _, members = await store.members()
    return next((each for row in rows for each in members if each.incarnation == row.home), None)

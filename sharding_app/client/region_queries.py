"""Answers to questions to a region about itself and its cluster (`entities.sharding.queries`)."""

import asyncio
from collections.abc import Mapping

from sharding_app.entities.settings import LARGEST_NUMBER
from sharding_app.entities.sharding.queries import (
    ClusterShardingStats,
    CurrentShardRegionState,
    GetClusterShardingStats,
    GetCurrentRegions,
    GetNumberOfWorkers,
    GetShardLocations,
    GetShardRegionState,
    GracefulShutdown,
    Rescale,
    SetActiveEntityLimit,
    UpdateShardLocations,
)
from sharding_app.errors import AskTimeout, InvalidCall, Unavailable, WrongContext
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.listing import IdsInMemory, ShardsLeft
from sharding_app.protocol.liveness.membership import member_names
from sharding_app.protocol.messages import GetEntities
from sharding_app.protocol.records import Member, NumberOfWorkers
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.process import Process

ANSWER_SECONDS = 3.0
IDS_AT_A_TIME = 1000
LOOK_SECONDS = 0.1


async def inspect(process: Process, type_name: str, question: object, timeout: float | None) -> object:
    """Answer a question; late nodes end up in the answer's `failed` set."""
    try:
        return await _answer(process, type_name, question, timeout)
    except StoreUnavailable as error:
        text = f"{type(question).__qualname__} about {type_name!r} cannot be answered: {error}"
        raise Unavailable(text, code=_code_of(question, error)) from error


def _code_of(question: object, error: StoreUnavailable) -> str | None:
    """Return the code of the error: a write may have taken effect, unless the server says no."""
    writes = isinstance(question, Rescale | UpdateShardLocations) and not error.answered
    return "fate_unknown" if writes else None


async def _answer(process: Process, type_name: str, question: object, timeout: float | None) -> object:
    match question:
        case GetShardRegionState():
            return _state(process, type_name)
        case GetCurrentRegions():
            return await _regions(process, type_name, ANSWER_SECONDS if timeout is None else timeout)
        case GetClusterShardingStats():
            return await _stats(process, type_name, ANSWER_SECONDS if timeout is None else timeout)
        case IdsInMemory():
            return await _in_memory(process, type_name, question)
        case GracefulShutdown():
            leave(process, type_name)
            return None
        case SetActiveEntityLimit():
            _set_limit(process, type_name, question.limit)
            return None
        case GetShardLocations():
            found = await process.ports.store.locations(type_name)
            return {} if found is None else dict(found[1])
        case UpdateShardLocations():
            await _locate(process, type_name, question.locations)
            return None
        case GetNumberOfWorkers():
            return await _workers(process, type_name)
        case Rescale():
            return await _rescale(process, type_name, question.workers, timeout)
    raise InvalidCall(f"a region cannot be asked {question!r}")


def _set_limit(process: Process, type_name: str, limit: int) -> None:
    if not isinstance(process, Node) or type_name not in process.hosts:
        raise WrongContext(f"nothing of {type_name!r} is hosted in this process")
    if type(limit) is not int or not 0 <= limit <= LARGEST_NUMBER:
        raise InvalidCall(f"the limit is an int from 0 to {LARGEST_NUMBER}, not {limit!r}")
    for host in process.hosting.hosts_of(type_name):
        host.entity_life.set_limit(limit)


def leave(process: Process, type_name: str) -> None:
    """Hand over the shards of this process's region."""
    if not isinstance(process, Node) or type_name not in process.hosts:
        raise WrongContext(f"nothing of {type_name!r} is hosted in this process")
    process.leave_region(type_name)


async def _locate(process: Process, type_name: str, locations: Mapping[int, str]) -> None:
    config = process.configs.get(type_name)
    if config is not None:
        known = process.region_client.numbering(type_name) or config.numbering
        if beyond := sorted(shard for shard in locations if shard >= known.most):
            raise InvalidCall(
                f"{type_name!r} has {known.most} shards, numbered from 0: there is no shard {beyond[0]}"
            )
        # The nodes may come later than the locations.
        await process.ports.store.register_types([config])
    if not await process.ports.store.locate(type_name, locations):
        raise InvalidCall(f"neither the cluster nor this process knows a type {type_name!r}")


async def _workers(process: Process, type_name: str) -> NumberOfWorkers:
    numbers = {each.type: each for each in await process.ports.store.workers()}
    if type_name not in numbers:
        raise Unavailable(
            f"{type_name!r} has no workers yet: start `manage.py sharding_node` with the app that declares them"
        )
    return numbers[type_name]


async def _rescale(process: Process, type_name: str, workers: int, timeout: float | None) -> NumberOfWorkers:
    """Store the wish, and wait until it is carried out. Raises AskTimeout if that takes longer."""
    wished = await process.ports.store.rescale(type_name, workers)
    if wished is None:
        await _workers(process, type_name)  # raises, and says why
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    now_is = await _workers(process, type_name)
                except StoreUnavailable:  # the wish is stored, and carried out once the store is back
                    await asyncio.sleep(LOOK_SECONDS)
                    continue
                if now_is.wanted != workers:
                    raise Unavailable(
                        f"another rescale of {type_name!r} has taken the place of this one: to {now_is.wanted}"
                    )
                if not now_is.rescaling:
                    return now_is
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AskTimeout(
            f"the old workers of {type_name!r} have not all stopped within {timeout:g} s. The rescale to"
            f" {workers} is stored, and goes on",
        ) from None


def _state(process: Process, type_name: str) -> CurrentShardRegionState:
    if not isinstance(process, Node) or type_name not in process.hosts:
        return CurrentShardRegionState()
    return CurrentShardRegionState(
        {
            number: frozenset(each.slots)
            for host in process.hosting.hosts_of(type_name)
            for number, each in host.shards.items()
        }
    )


async def _regions(process: Process, type_name: str, timeout: float) -> set[str]:
    """Return the nodes to which the coordinator would give shards.

    Without an answer of a coordinator, return those that the rows name.
    """
    row = await process.ports.store.coordinator()
    found = {} if row.incarnation is None else await process.queries.stats([row.incarnation], timeout)
    known = [each.coordination for each in found.values() if each.coordination is not None]
    _, members = await process.ports.store.members()
    up = [each for each in members if type_name in each.types and each.state == "up"]
    return {each.name for each in up if not known or each.incarnation in known[0].heard}


async def _stats(process: Process, type_name: str, timeout: float) -> ClusterShardingStats:
    _, members = await process.ports.store.members()
    up = [each for each in members if type_name in each.types and each.state == "up"]
    names = member_names(up)
    found = await process.queries.region_states(names, [type_name], timeout)
    regions = {
        names[node]: dict(zip(region.shards, region.entities, strict=True))
        for node, answer in found.answers.items()
        for region in answer.regions
    }
    return ClusterShardingStats(regions, frozenset(names[node] for node in found.failed))


async def _in_memory(
    process: Process, type_name: str, asked: IdsInMemory
) -> tuple[list[str], ShardsLeft | None]:
    """Return the entities in memory of the next shard, up to a page.

    A node that does not answer is an error: its entities would be missing in silence.
    """
    left = asked.place or ShardsLeft(await _shards_in_use(process, type_name))
    if not left.shards:
        return [], None
    home, shard = left.shards[0]
    wanted = GetEntities(0, type_name, shard, left.after, IDS_AT_A_TIME)
    found = await process.queries.entities(home, wanted, ANSWER_SECONDS)
    if found is None and any(each.incarnation == home for each in await _up(process, type_name)):
        raise Unavailable(f"the home of shard {shard} of {type_name!r} did not say which entities it has")
    listed = [] if found is None else found.entities
    ids = [each.entity for each in listed if each.doing != "loading" and each.entity.startswith(asked.prefix)]
    if len(listed) >= IDS_AT_A_TIME:
        return ids, ShardsLeft(left.shards, listed[-1].entity)
    rest = left.shards[1:]
    return ids, ShardsLeft(rest) if rest else None


async def _shards_in_use(process: Process, type_name: str) -> tuple[tuple[str, int], ...]:
    """Return the shards that have entities in memory, and their homes."""
    if type_name not in process.configs:
        raise InvalidCall(f"no entity type {type_name!r} is known here: is its app in INSTALLED_APPS?")
    nodes = [each.incarnation for each in await _up(process, type_name)]
    found = await process.queries.region_states(nodes, [type_name], ANSWER_SECONDS)
    if found.failed:
        raise Unavailable(f"{len(found.failed)} nodes did not say which shards of {type_name!r} they have")
    return tuple(
        (node, shard)
        for node, answer in found.answers.items()
        for region in answer.regions
        for shard, entities in zip(region.shards, region.entities, strict=True)
        if entities
    )


async def _up(process: Process, type_name: str) -> list[Member]:
    """Return the living nodes that host the type, those that leave included."""
    _, members = await process.ports.store.members()
    return [each for each in members if type_name in each.types and each.state != "joining" and each.locks]

"""`ShardedDaemonProcess`: numbered workers, each of them running in one place of the cluster.

A set of workers is a type with one shard and one entity for each worker. So it has everything that
shards have: an epoch that fences it, a hand-over when its node leaves, a takeover when the node
dies, and a lease if it wants one. The workers are started without a message, and spread over the
nodes of their role.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Generic, TypeVar, cast

from sharding_app.entities import gateway
from sharding_app.entities.base import Worker
from sharding_app.entities.extractors import MessageExtractor
from sharding_app.entities.identifiers import declared_name
from sharding_app.entities.registry import registry
from sharding_app.entities.settings import ShardingSettings
from sharding_app.entities.sharding.queries import GetNumberOfWorkers, Question, Rescale
from sharding_app.entities.sharding.regions import ClusterSharding
from sharding_app.errors import DeclarationError, InvalidCall, ShardingError, WrongContext
from sharding_app.protocol.allocation.workers import EVENLY, MOST_WORKERS, WORKERS
from sharding_app.protocol.records import NumberOfWorkers
from sharding_app.protocol.supervision import Supervision

W = TypeVar("W", bound=Worker)

RESCALE_SECONDS = 60.0
TAKEN = ("role", "ask_timeout_seconds", "use_lease", "allocation", "supervision")
"""The settings of a type that mean something to workers."""


class WorkerExtractor(MessageExtractor):
    """The rule of a set of workers: shard 3 has worker 3 alone."""

    def __init__(self) -> None:
        super().__init__(MOST_WORKERS)

    @property
    def name(self) -> str:
        return "worker:1"

    def shard_id(self, entity_id: str) -> int:
        number = int(entity_id) if entity_id.isascii() and entity_id.isdecimal() else -1
        if str(number) != entity_id:
            raise InvalidCall(f"the id of a worker is its number, not {entity_id!r}")
        return number


class Workers(Generic[W]):
    """A started set of workers, from any process: its number, and the refs of its workers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.type_name = WORKERS + name

    async def workers(self, *, timeout: float = 5.0) -> NumberOfWorkers:
        """Return how many workers there are, and how many there are to be."""
        return cast(NumberOfWorkers, await self._ask(GetNumberOfWorkers(), timeout))

    async def rescale(self, workers: int, *, timeout: float = RESCALE_SECONDS) -> NumberOfWorkers:
        """Change the number of workers; return once all old ones have stopped.

        The new ones start then. The wish is stored at once: it is carried out whatever becomes of
        this process, also after `AskTimeout`.
        """
        return cast(NumberOfWorkers, await self._ask(Rescale(checked_number(workers)), timeout))

    @property
    def sync(self) -> SyncWorkers:
        """The set for sync code: `importers.sync.rescale(8)`."""
        return SyncWorkers(self)

    def ref(
        self,
        number: int,
        *,
        timeout: float | None = None,
        command_id: str | None = None,
        on_commit: bool = True,
    ) -> type[W]:
        """Return the ref of one worker, for its commands and queries."""
        if type(number) is not int or not 0 <= number < MOST_WORKERS:
            raise InvalidCall(f"workers are numbered from 0 to {MOST_WORKERS - 1}, not {number!r}")
        made = registry.get(self.type_name).ref_class(str(number), timeout, command_id, on_commit)
        return cast("type[W]", made)

    async def _ask(self, question: Question, timeout: float) -> object:
        return await gateway.inspector().inspect(self.type_name, question, timeout)

    def __repr__(self) -> str:
        return f"<workers {self.name!r}>"


class SyncWorkers:
    """`Workers` for sync views, tasks and the shell."""

    def __init__(self, workers: Workers[Any]) -> None:
        self._workers = workers

    def workers(self, *, timeout: float = 5.0) -> NumberOfWorkers:
        """Return how many workers there are, and how many there are to be."""
        return cast(NumberOfWorkers, self._ask("workers", GetNumberOfWorkers(), timeout))

    def rescale(self, workers: int, *, timeout: float = RESCALE_SECONDS) -> NumberOfWorkers:
        """Change the number of workers; return once all old ones have stopped."""
        return cast(NumberOfWorkers, self._ask("rescale", Rescale(checked_number(workers)), timeout))

    def _ask(self, method: str, question: Question, timeout: float) -> object:
        if asyncio._get_running_loop() is not None:
            raise WrongContext(
                f"workers.sync.{method}() would block the event loop of this thread: use `await workers.{method}(...)`"
            )
        return gateway.inspector().inspect_sync(self._workers.type_name, question, timeout)


class ShardedDaemonProcess:
    """Declares sets of workers; as with `ClusterSharding.start`, nothing is connected."""

    @staticmethod
    def start(
        name: str,
        *,
        worker: type[W],
        workers: int,
        role: str | None = None,
        settings: ShardingSettings | None = None,
    ) -> Workers[W]:
        """Declare a set whose workers run on the nodes of the role, numbered from 0; return the
        set.

        `workers` is their number at first. From then on the cluster keeps it, and `rescale` changes
        it.
        """
        declared_name(name, "a set of workers")
        given: object = worker
        if not (isinstance(given, type) and issubclass(given, Worker) and given is not Worker):
            raise DeclarationError(f"worker must be a subclass of Worker, not {worker!r}")
        checked_number(workers, DeclarationError)
        own = getattr(worker, "settings", None) or ShardingSettings()
        wanted = ShardingSettings(role=role).over((settings or ShardingSettings()).over(own))
        for field in dataclasses.fields(ShardingSettings):
            if field.name not in TAKEN and getattr(wanted, field.name) is not None:
                raise DeclarationError(
                    f"{name!r}: workers do not take {field.name}; they take {', '.join(TAKEN)}"
                )
        ClusterSharding.start(
            WORKERS + name,
            entity=worker,
            # A command that fails does not stop what `run` is at.
            settings=wanted.over(
                ShardingSettings(
                    allocation=EVENLY,
                    supervision=Supervision(default="resume"),
                    passivate_after_seconds=0,
                    remember_entities=False,
                    pipelined=False,
                )
            ),
            extractor=WorkerExtractor(),
        )
        registry.get(WORKERS + name).workers = workers
        return Workers(name)


def checked_number(workers: int, error: type[ShardingError] = InvalidCall) -> int:
    """Return a number of workers, or raise an error that says which are possible."""
    if type(workers) is not int or not 1 <= workers <= MOST_WORKERS:
        raise error(f"workers must be an int from 1 to {MOST_WORKERS}, not {workers!r}")
    return workers

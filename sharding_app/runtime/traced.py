"""The engine's parts with spans: made in the place of the plain ones while somebody traces, and only then.

* ask: from the call to its answer, in the caller's process; `tell` ends at once.
* deliver: from the handler's beginning to the answer, in the entity's process; what a handler calls lies inside.
* persist: from the commit's way into the journal's next batch to its outcome, inside the command's.
* recover: one read of the journal for entities that are wanted together, linked with the commands that wait for it.
* hand-off: from the word that a shard should stop here to its stop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sharding_app.core.ids import Epoch, Incarnation, ShardId
from sharding_app.core.messages import Deliver
from sharding_app.core.shard import Shard, Slot
from sharding_app.errors import ShardingError
from sharding_app.model.types import Handler
from sharding_app.runtime import tracing
from sharding_app.runtime.answers import Answers
from sharding_app.runtime.asker import Asker
from sharding_app.runtime.commits import CommandCommit, StepCommit
from sharding_app.runtime.execution import Execution
from sharding_app.runtime.journal_writer import Commit, JournalWriter, NotCommitted
from sharding_app.runtime.loader import Loader
from sharding_app.runtime.rebuilding import Folding
from sharding_app.runtime.shard_life import ShardLife
from sharding_app.runtime.tracing import Tracer

if TYPE_CHECKING:
    from opentelemetry.trace import Span

MAX_OPEN = 100_000
"""So many commands may be under way in spans; the oldest ones end first."""
MAX_LINKS = 32

Part = TypeVar("Part")


def active_tracer() -> Tracer:
    if tracing.active is None:
        raise RuntimeError("a traced part is made only while somebody traces")
    return tracing.active


class TracedAsker(Asker):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._tracer = active_tracer()

    def ask(
        self,
        type_name: str,
        entity: str,
        command: str,
        *rest: Any,
        tell: bool = False,
        trace: str = "",
        **more: Any,
    ) -> asyncio.Future[bytes]:
        tracer = self._tracer
        parent = tracer.context(trace)
        about: tracing.Attributes = {"type": type_name, "entity": entity, "command": command}
        span = tracer.start(
            f"{'tell' if tell else 'ask'} {type_name}.{command}", "producer" if tell else "client", about,
            parent,
        )  # fmt: skip
        carried = tracer.carry(span, parent)
        future = super().ask(type_name, entity, command, *rest, tell=tell, trace=carried, **more)
        if tell:
            tracer.end(span)
        else:
            future.add_done_callback(lambda done: tracer.end(span, _error(done)))
        return future


def _error(done: asyncio.Future[Any]) -> BaseException | str | None:
    return "the caller has gone away" if done.cancelled() else done.exception()


class TracedAnswers(Answers):
    """Whatever is said of a command ends its span."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._tracer = active_tracer()
        self._open: dict[int, tuple[Deliver, Span]] = {}
        "By the message's identity, with the message, so that no other one can have it."

    def begin(self, message: Deliver, span: Span) -> None:
        while len(self._open) >= MAX_OPEN:
            self._end(next(iter(self._open.values()))[0], "its end was never heard of")
        self._open[id(message)] = message, span

    def span_of(self, message: Deliver) -> Span | None:
        found = self._open.get(id(message))
        return None if found is None else found[1]

    def answer(self, source: Incarnation, message: Deliver, value: bytes) -> None:
        super().answer(source, message, value)
        self._end(message)

    def fail(self, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        super().fail(source, message, error)
        self._end(message, error)

    def hand_back(self, source: Incarnation, message: Deliver) -> None:
        super().hand_back(source, message)
        self._end(message, "handed back: its shard lives elsewhere")

    def _end(self, message: Deliver, error: BaseException | str | None = None) -> None:
        found = self._open.pop(id(message), None)
        if found is not None:
            self._tracer.end(found[1], error)


class TracedExecution(Execution):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._tracer = active_tracer()
        self._traced = self.answers = TracedAnswers(
            self.type, self.owner, self.meter, self.counters, self.failing.did_well
        )  # fmt: skip
        self._commits_open: dict[int, tuple[Commit, Span]] = {}
        self.writer = cast(JournalWriter, _TracedWriter(self.writer, self))

    def start(
        self, slot: Slot, source: Incarnation, message: Deliver, handler: Handler, args: tuple[Any, ...]
    ) -> bool:
        tracer = self._tracer
        parent = tracer.context(message.trace)
        about: tracing.Attributes = {"type": self.type.name, "entity": slot.id, "command": message.command}
        span = tracer.start(
            f"deliver {self.type.name}.{message.command}", "consumer", {**about, "shard": message.shard},
            parent,
        )  # fmt: skip
        self._traced.begin(message, span)
        with tracer.inside(span, parent):
            return super().start(slot, source, message, handler, args)

    def committed(self, commit: CommandCommit) -> None:
        self._end_commit(commit)
        super().committed(commit)

    def not_committed(self, commit: CommandCommit, why: NotCommitted, detail: str) -> None:
        self._end_commit(commit, f"{why.value} {detail}".rstrip())
        super().not_committed(commit, why, detail)

    def begin_commit(self, commit: Commit) -> None:
        """It is on its way into the journal."""
        about: tracing.Attributes = {
            "type": self.type.name,
            "entity": commit.slot.id,
            "events": len(commit.rows),
        }
        inside = self._traced.span_of(commit.message) if isinstance(commit, CommandCommit) else None
        span = self._tracer.child(f"persist {self.type.name}", about, inside)
        if isinstance(commit, StepCommit):
            commit.future.add_done_callback(lambda done: self._tracer.end(span, _error(done)))
        else:
            self._commits_open[id(commit)] = commit, span

    def _end_commit(self, commit: Commit, error: str | None = None) -> None:
        found = self._commits_open.pop(id(commit), None)
        if found is not None:
            self._tracer.end(found[1], error)


class _TracedWriter:
    """The journal's writer, as one type's execution sees it."""

    def __init__(self, writer: JournalWriter, execution: TracedExecution) -> None:
        self._writer = writer
        self._execution = execution

    def put(self, commit: Commit) -> None:
        self._execution.begin_commit(commit)
        self._writer.put(commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class TracedLoader(Loader):
    async def _load(self, batch: list[Slot], folding: Folding) -> int:
        waiting = [message.trace for slot in batch for _, message in slot.mailbox or () if message.trace]
        tracer = active_tracer()
        about: tracing.Attributes = {"type": self._type.name, "entities": len(batch)}
        parent = tracer.context(waiting[0]) if len(waiting) == 1 else None
        span = tracer.start(f"recover {self._type.name}", "internal", about, parent, waiting[:MAX_LINKS])
        try:
            with tracer.inside(span):
                return await super()._load(batch, folding)
        finally:
            tracer.end(span)


class TracedShardLife(ShardLife):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._tracer = active_tracer()
        self._handing_off: dict[ShardId, Span] = {}

    def stop(self, number: ShardId, epoch: Epoch) -> None:
        type_name, shard = self._host.type.name, self._host.shards.get(number)
        if shard is not None and shard.epoch == epoch and number not in self._handing_off:
            about: tracing.Attributes = {"type": type_name, "shard": number, "entities": len(shard.slots)}
            self._handing_off[number] = self._tracer.start(f"hand-off {type_name}", "internal", about)
        super().stop(number, epoch)

    def ended(self, shard: Shard) -> None:
        super().ended(shard)
        span = self._handing_off.pop(shard.number, None)
        if span is not None:
            self._tracer.end(span)


def asker_class() -> type[Asker]:
    """A process begins: see whether somebody traces."""
    tracing.look()
    return _chosen(Asker, TracedAsker)


def execution_class() -> type[Execution]:
    return _chosen(Execution, TracedExecution)


def loader_class() -> type[Loader]:
    return _chosen(Loader, TracedLoader)


def shard_life_class() -> type[ShardLife]:
    return _chosen(ShardLife, TracedShardLife)


def _chosen(plain: type[Part], traced: type[Part]) -> type[Part]:
    return plain if tracing.active is None else traced

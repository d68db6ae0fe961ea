"""Parts of the engine with spans for OpenTelemetry (`TRACED`).

`runtime.telemetry.tracing` puts them in the place of the plain ones while tracing is set up. The
engine does not know them.

* ask: from the call to its answer, in the caller's process; `tell` ends at once.
* deliver: from the handler's beginning to the answer, in the entity's process. Calls of the handler
  lie inside.
* persist: from the commit's way into the journal's next batch to its outcome, inside the command's.
* recover: one read of the journal for entities that are wanted together, linked with the commands
  that wait for it.
* hand-off: from the message that a shard should stop here to its stop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sharding_app.entities.entity_type import Handler
from sharding_app.errors import ShardingError
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import Epoch, ShardId
from sharding_app.protocol.pending_call import PendingCall, Reply
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.execution.command import Command
from sharding_app.runtime.execution.execution import Execution
from sharding_app.runtime.hosting.shards import ShardLife
from sharding_app.runtime.journal.commits import (
    Commit,
    NotCommitted,
    Resident,
    ResidentShard,
    StepCommit,
)
from sharding_app.runtime.journal.loader import Loader
from sharding_app.runtime.journal.rebuilding import Folding
from sharding_app.runtime.telemetry import tracing
from sharding_app.runtime.telemetry.tracing import Tracer

if TYPE_CHECKING:
    from opentelemetry.trace import Span

MAX_LINKS = 32


def active_tracer() -> Tracer:
    if tracing.active is None:
        raise RuntimeError("a traced part is made only while a tracer provider is set")
    return tracing.active


class TracedRegionClient(RegionClient):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._tracer = active_tracer()

    def ask_for(self, call: Call, reply: Reply | None, safe: bool, waited: float = 0.0) -> PendingCall:
        tracer = self._tracer
        parent = tracer.context(call.trace)
        kind: tuple[str, tracing.Kind] = ("tell", "producer") if call.tell else ("ask", "client")
        about: tracing.Attributes = {"type": call.type, "entity": call.entity, "command": call.command}
        span = tracer.start(f"{kind[0]} {call.type}.{call.command}", kind[1], about, parent)
        call.trace = tracer.carry(span, parent)
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(lambda done: tracer.end(span, _error(done)))
        elif reply is not None:
            reply = TracedReply(reply, span, tracer)
        pending = super().ask_for(call, reply, safe, waited)
        if reply is None:
            tracer.end(span)
        return pending


class TracedReply:
    """Ends the span of a call before its outcome is taken in."""

    def __init__(self, reply: Reply, span: Span, tracer: Tracer) -> None:
        self.done = reply.done
        self._reply = reply
        self._span = span
        self._tracer = tracer

    def set_result(self, value: bytes, /) -> None:
        self._tracer.end(self._span)
        self._reply.set_result(value)

    def set_exception(self, error: Exception, /) -> None:
        self._tracer.end(self._span, error)
        self._reply.set_exception(error)


def _error(done: asyncio.Future[Any]) -> BaseException | str | None:
    return "the caller has gone away" if done.cancelled() else done.exception()


class TracedCommand(Command):
    """A command with a span from its handler's beginning to its reply, and one for its commit."""

    span: Span | None = None
    commit_span: Span | None = None

    def start(self, handler: Handler, args: tuple[Any, ...]) -> bool:
        tracer, message, type_name = active_tracer(), self.message, self.services.type.name
        parent = tracer.context(message.trace)
        about: tracing.Attributes = {"type": type_name, "entity": self.slot.id, "command": message.command}
        self.span = span = tracer.start(
            f"deliver {type_name}.{message.command}", "consumer", {**about, "shard": message.shard}, parent
        )
        with tracer.inside(span, parent):
            return super().start(handler, args)

    def put(self, commit: Commit) -> None:
        tracer, type_name = active_tracer(), self.services.type.name
        about: tracing.Attributes = {"type": type_name, "entity": self.slot.id, "events": len(commit.rows)}
        span = tracer.child(f"persist {type_name}", about, self.span if commit is self else None)
        if isinstance(commit, StepCommit):
            commit.future.add_done_callback(lambda done: tracer.end(span, _error(done)))
        else:
            self.commit_span = span
        super().put(commit)

    def committed(self) -> None:
        self._end(self.commit_span)
        super().committed()

    def not_committed(self, why: NotCommitted, detail: str) -> None:
        self._end(self.commit_span, f"{why.value} {detail}".rstrip())
        super().not_committed(why, detail)

    def answer(self) -> None:
        super().answer()
        self._end(self.span)

    def fail(self, error: ShardingError) -> None:
        super().fail(error)
        self._end(self.span, error)

    def hand_back(self) -> None:
        super().hand_back()
        self._end(self.span, "handed back: its shard lives elsewhere")

    def _end(self, span: Span | None, error: BaseException | str | None = None) -> None:
        if span is not None:
            active_tracer().end(span, error)


class TracedExecution(Execution):
    command_class = TracedCommand


class TracedLoader(Loader):
    async def _load(self, batch: list[Resident], folding: Folding) -> int:
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

    def ended(self, shard: ResidentShard) -> None:
        super().ended(shard)
        span = self._handing_off.pop(shard.number, None)
        if span is not None:
            self._tracer.end(span)


TRACED: dict[type[Any], type[Any]] = {
    RegionClient: TracedRegionClient,
    Execution: TracedExecution,
    Loader: TracedLoader,
    ShardLife: TracedShardLife,
}

"""Concurrent queries: they are answered beside the command that their entity is busy with.

Contract: such a query sees a committed state, and none that is older than what any caller was told
before it was called. It reaches the entity in one of three ways:

* While a handler waits, or runs in a thread, it runs on a *copy* of the state before that handler,
  or at its last `await self.persist(...)`. A waiting query changes nothing: then it runs on the
  object.
* While the last commit of a command is under way, it runs on the object. Nothing else runs there
  before the end of that commit, which its answer waits for. Answers that wait count as messages in
  the mailbox do. If the commit fails, their queries go back into it, as far as there is room.
* Otherwise it waits in the mailbox, as any message, until one of these is so, or its turn comes.

Only types that declare such queries have commands of the class `Watched`. A copy costs them one
encoded state for each handler that waits, and its decoding if a query comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, cast

from sharding_app.entities.entity_type import Handler
from sharding_app.entities.staging import Record, Staging
from sharding_app.errors import NotSerializable, Rejected, ShardingError
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.shard import BUSY, Work
from sharding_app.runtime.base import call_chain
from sharding_app.runtime.base.interfaces import RAISED
from sharding_app.runtime.execution.command import Command, Services
from sharding_app.runtime.journal.commits import Commit, NotCommitted, Resident


class Watched(Command):
    """A command that keeps the committed state of its entity while it waits."""

    state: bytes | None = None
    "The committed one, encoded. None: it could not be encoded, or is the object's."
    view: object | None = None
    "What concurrent queries run on, once one has come."
    commits_alone = False
    "Its last commit is under way, and nothing else runs in its entity before the end of it."

    @property
    def beside(self) -> Beside:
        return cast("Beside", cast(Any, self.services).beside)

    async def _run_waiting(self, handler: Handler, args: tuple[Any, ...]) -> None:
        try:
            await super()._run_waiting(handler, args)
        finally:
            self.beside.ended(self)

    async def _call(self, handler: Handler, entity: object, args: tuple[Any, ...]) -> Any:
        if handler.is_query:
            self.view = entity
        else:
            self.keep(self._encoded_state())
        self.beside.began(self)
        return await super()._call(handler, entity, args)

    def _begin_step(self, staging: Staging) -> asyncio.Future[datetime | None] | None:
        under_way = super()._begin_step(staging)
        if under_way is not None:
            state = self._encoded_state()

            def is_known(future: asyncio.Future[datetime | None]) -> None:
                if not future.cancelled() and future.exception() is None:
                    self.keep(state)

            under_way.add_done_callback(is_known)
        return under_way

    def _commit(self, records: Sequence[Record]) -> bool:
        goes_on = super()._commit(records)
        if not goes_on:
            self.commits_alone = True
            self.slot.tail = self
            self.beside.let_in(self.slot)
        return goes_on

    def committed(self) -> None:
        if self.slot.tail is self and self.commits_alone:
            self.slot.tail = None
        super().committed()

    def keep(self, state: bytes | None) -> None:
        """Take the state that is committed now."""
        self.state, self.view = state, None

    def _encoded_state(self) -> bytes | None:
        try:
            return self.services.type.dump_state(self.slot.entity)
        except RAISED:  # the user's `snapshot()`, or a value that is no JSON
            self.services.counters["states_not_copied"] += 1
            return None

    def seen(self) -> object | None:
        """Return an object in the committed state; None: there is none."""
        if self.view is None and self.state is not None:
            entity_type, slot = self.services.type, self.slot
            try:
                view = entity_type.new(slot.id, cast(Any, slot.entity).context)
                entity_type.load_state(view, self.state)
            except RAISED:  # so may `__init__` and `restore()`
                self.services.counters["states_not_copied"] += 1
                self.state = None
            else:
                self.view = view
        return self.view


class Asked(NamedTuple):
    """A query that has run, and whose answer waits for a commit."""

    source: Incarnation
    message: Deliver
    outcome: bytes | ShardingError


class Beside:
    """The concurrent queries of one type in one process."""

    def __init__(self, execution: Services) -> None:
        self._execution = execution
        self._queries = execution.type.concurrent
        self._running: dict[Resident, Watched] = {}
        "Commands whose handlers wait."
        self._asked: dict[Commit, list[Asked]] = {}
        "By the commit that they wait for, in their order."

    @property
    def most_waiting(self) -> int:
        """Largest number of answers that wait for one commit."""
        return max(map(len, self._asked.values())) if self._asked else 0

    def takes(self, slot: Resident, source: Incarnation, message: Deliver) -> bool:
        """Answer a query that would have to wait. False: it has to."""
        if message.command not in self._queries or slot.state is not BUSY or slot.passivating:
            return False
        execution = self._execution
        if not execution.owner.may_begin(slot.shard):
            return False
        if slot.tail is not None and not self._has_room(slot, slot.tail):
            return False
        entity = self._committed(slot)
        if entity is None:
            return False
        execution.counters["queries_beside"] += 1
        self._run(slot, entity, source, message)
        return True

    def began(self, command: Watched) -> None:
        """Let in queries that came before the handler that waits now."""
        self._running[command.slot] = command
        self.let_in(command.slot)

    def ended(self, command: Watched) -> None:
        if self._running.get(command.slot) is command:
            del self._running[command.slot]

    def let_in(self, slot: Resident) -> None:
        """Answer the queries in an entity's mailbox that can be answered now."""
        if slot.mailbox:
            stay = deque(each for each in slot.mailbox if not self._is_let_in(slot, each))
            slot.mailbox = stay or None

    def _is_let_in(self, slot: Resident, work: Work) -> bool:
        if not self.takes(slot, *work):
            return False
        self._execution.owner.taken(*work)
        return True

    def _committed(self, slot: Resident) -> object | None:
        """Return an object whose state is committed, or will be with the tail."""
        running, tail = self._running.get(slot), slot.tail
        if running is not None:
            return running.seen() if running.is_current() else None
        return slot.entity if isinstance(tail, Watched) and tail.commits_alone else None

    def _run(self, slot: Resident, entity: Any, source: Incarnation, message: Deliver) -> None:
        execution = self._execution
        replies, watch = execution.replies, execution.watch
        if message.deadline_ms and message.deadline_ms <= execution.owner.now() * 1000:
            replies.expired(source, message)
            return
        handler = execution.commands[message.command]
        try:
            args, staging = handler.decode(message.args), entity._sharding_staging
        except RAISED as raised:
            failed = (
                raised
                if isinstance(raised, ShardingError)
                else execution.type.failed(slot.id, handler.name, raised)
            )
            replies.refuse(source, message, failed)
            return
        watch.running = (message.type, handler.name)
        token = call_chain.enter((message.chain, message.type, slot.id))
        error: ShardingError | None = None
        value = b""
        try:
            entity._sharding_staging = None
            value = handler.encode_result(handler.function(entity, *args))
        except RAISED as raised:
            error = self._error_of(slot, message, raised)
        finally:
            call_chain.leave(token)
            watch.running = None
            with suppress(BaseException):  # the user's class may refuse to be written to
                entity._sharding_staging = staging
        self._answer(slot, Asked(source, message, value if error is None else error))

    def _error_of(self, slot: Resident, message: Deliver, raised: BaseException) -> ShardingError:
        """Return the error for the caller. It costs the query, and nothing of its entity."""
        if isinstance(raised, Rejected | NotSerializable):
            return raised
        return self._execution.failures.error_for(slot, message, raised, partly=False)

    def _has_room(self, slot: Resident, tail: Commit) -> bool:
        """Whether one more answer may wait for a commit: as a message in the mailbox would."""
        # The query itself is among those in the mailbox still.
        waiting = len(slot.mailbox or ()) + len(self._asked.get(tail, ()))
        return waiting <= slot.shard.mailbox_limit

    def _answer(self, slot: Resident, asked: Asked) -> None:
        """Send the outcome when the state that the query has seen is committed."""
        tail = slot.tail
        if tail is None:
            self._send(asked)
            return
        if tail not in self._asked:
            self._asked[tail] = []
            tail.follow(partial(self._follow, slot, tail))
        self._asked[tail].append(asked)
        self._execution.owner.waits(asked.source, asked.message)

    def _follow(self, slot: Resident, tail: Commit, why: NotCommitted | None) -> None:
        execution = self._execution
        all_asked = self._asked.pop(tail)
        for each in all_asked:
            execution.owner.taken(each.source, each.message)
        if why is None:
            for each in all_asked:
                self._send(each)
        elif why is NotCommitted.FENCED or slot.is_gone:
            for each in all_asked:
                execution.replies.hand_back(each.source, each.message)
        else:  # they ran on a state that is none
            execution.owner.ask_again(slot, [(each.source, each.message) for each in all_asked])

    def _send(self, asked: Asked) -> None:
        replies = self._execution.replies
        if isinstance(asked.outcome, bytes):
            replies.answer(asked.source, asked.message, asked.outcome)
        else:
            replies.fail(asked.source, asked.message, asked.outcome)


def watched(plain: type[Command]) -> type[Command]:
    """Return the class of commands for a type with concurrent queries."""
    return Watched if plain is Command else type("Watched", (Watched, plain), {})

"""Commands with an id of their own: before one runs, the journal is asked what an earlier attempt has left there.

Contract: the effect of a command happens once, and its first reply is given again, as long as its id is remembered (the
*window*). An attempt that is still under way is joined: this one waits in the mailbox until it is over. What is older than
the window is refused, by its age as each process has counted it by its own clock, and never by wall clocks. A command
that persisted nothing has left nothing, and may run again. An id that comes with another command, or with other arguments,
is an error of the caller's. Of an id that is known to be fresh (`runtime.known_ids`) the journal is not asked.
"""

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from sharding_app.core.command_ids import is_ours
from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Deliver
from sharding_app.core.shard import Slot
from sharding_app.errors import BadCall, PartlyApplied
from sharding_app.model.handler import Handler
from sharding_app.ports.journal import Journal, JournalUnavailable, Outcome
from sharding_app.runtime.known_ids import KnownIds
from sharding_app.runtime.waiting import is_gone, settled

if TYPE_CHECKING:
    from sharding_app.runtime.execution import Execution

RETRY_SECONDS = 0.1
CLOCK_DRIFT = 1.1
"""Clock rates of processes and server are assumed to differ by less than a tenth."""
SPARE_SECONDS = 1.0
"""A question to the journal may take this long, and is answered rightly all the same."""
ARGUMENTS = "#"
"""Stands in the journal between a command's name and its arguments in short."""


def as_stored(message: Deliver, handler: Handler) -> str:
    """What the journal keeps of a command beside its id; without an id of its own its arguments cannot differ."""
    if not message.command_id:
        return message.command
    arguments = handler.digest(message.args)
    return f"{message.command}{ARGUMENTS}{arguments}" if arguments else message.command


class _Asking(NamedTuple):
    """A command while the journal is asked about it."""

    generation: int
    "Of its object."
    source: Incarnation
    message: Deliver


class Retries:
    def __init__(self, execution: "Execution", journal: Journal, command_window_seconds: float) -> None:
        self._execution = execution
        self._journal = journal
        self._window_ms = int(command_window_seconds * 1000)
        self.known = KnownIds(lambda: execution.owner.now())
        self._asking: dict[Slot, _Asking] = {}
        "What the journal is asked about."

    def asks(self, slot: Slot, source: Incarnation, message: Deliver) -> None:
        """The job of a command begins (`run`)."""
        self._asking[slot] = _Asking(slot.generation, source, message)

    def put_back(self, slot: Slot) -> None:
        """Its object is thrown away: what the journal is asked about is the next to run. Without this, commands that came after
        it could run before its job hears of that."""
        asking = self._asking.pop(slot, None)
        if asking is not None:
            self._later(slot, asking.source, asking.message)

    async def run(
        self,
        slot: Slot,
        generation: int,
        source: Incarnation,
        message: Deliver,
        handler: Handler,
        args: tuple[Any, ...],
    ) -> None:
        """A command with an id of its own: look what an earlier attempt left in the journal before it runs."""
        execution, owner = self._execution, self._execution.owner
        if self._is_thrown_away(slot, generation):
            return
        if self._age_ms(message) > self._window_ms:
            del self._asking[slot]
            text = f"{message.command} is older than the window in which its id is remembered: it is not repeated"
            execution.answers.refuse(source, message, BadCall(text, code="too_old"))
            owner.finished(slot)
            return
        await settled(slot)
        found = await self._outcome(slot, message)
        await owner.lease()
        if self._is_thrown_away(slot, generation):
            return
        del self._asking[slot]
        if not owner.may_begin(slot.shard):
            execution.too_late(slot, source, message)
            return
        if found is None:
            if execution.start(slot, source, message, handler, args):
                owner.finished(slot)
            return
        execution.counters["retried"] += 1
        before, _, arguments = found.command.partition(ARGUMENTS)
        other = "" if before == message.command else repr(before)
        if not other and arguments not in ("", handler.digest(message.args)):
            other = f"{before!r} with other arguments"
        if other:
            text = f"command id {message.command_id!r} was used for {other} before: give each command its own"
            execution.answers.fail(source, message, BadCall(text, code="command_id_reused"))
        elif found.partial or found.reply is None:
            text = f"{execution.type.name} {slot.id!r}: {message.command} had committed a part when its node died"
            execution.answers.fail(source, message, PartlyApplied(text))
        else:
            execution.answers.answer(source, message, found.reply)
        owner.finished(slot)

    def is_fresh(self, slot: Slot, message: Deliver) -> bool:
        """Whether it is known here that no attempt can have left anything."""
        age_ms = self._age_ms(message)
        if is_ours(message.command_id) or age_ms > self._window_ms:
            return False
        return self.known.is_fresh(slot, message.command_id, (age_ms + self._window_ms) / 1000 * CLOCK_DRIFT)

    def note(self, slot: Slot, message: Deliver) -> None:
        """What this command has staged is put to the journal."""
        if message.command_id and not is_ours(message.command_id):
            self.known.note(slot, message.command_id)

    def _is_thrown_away(self, slot: Slot, generation: int) -> bool:
        """Whether the object has gone for which the job began. Its command was put back then, or is now."""
        if generation == slot.generation:
            return False
        asking = self._asking.get(slot)
        if asking is not None and asking.generation == generation:
            self.put_back(slot)
        return True

    def _later(self, slot: Slot, source: Incarnation, message: Deliver) -> None:
        """The object was thrown away before anything was found out. Nobody may say yet that nothing is stored: an earlier
        attempt may have stored it, so this one waits for the next object, or goes to its shard's next home."""
        if is_gone(slot) or slot.shard.stopping:
            self._execution.answers.hand_back(source, message)
        else:
            self._execution.owner.again(slot, source, message)

    def _age_ms(self, message: Deliver) -> int:
        return max(0, int(self._execution.owner.now() * 1000) - message.born_ms)

    async def _outcome(self, slot: Slot, message: Deliver) -> Outcome | None:
        """The window is the command id's, not this call's: its owner may have called before. One of our own is its call's.

        The server looks back from the moment in which it executes the question. That moment may be as late as the answer,
        where the question waits for others, for a connection or in a frozen server. So an answer that took longer than what
        is spare proves nothing, and the question is asked again with as much more.
        """
        spare = SPARE_SECONDS
        while True:
            asked_at, age_ms = self._execution.owner.now(), self._age_ms(message)
            age_ms = int(age_ms * CLOCK_DRIFT) if is_ours(message.command_id) else age_ms + self._window_ms
            try:
                found = await self._journal.outcome(
                    self._execution.type_id, slot.id, message.command_id, age_ms + int(spare * 1000)
                )
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            took = (self._execution.owner.now() - asked_at) * CLOCK_DRIFT
            if found is not None or took <= spare:
                return found
            spare = 2 * took

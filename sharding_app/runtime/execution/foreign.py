"""Messages whose rows lie in another journal than the entities of one type that they are for.

Contract: `protocol.delivery.foreign` has it. A command is *in hand* from `hold` until it is over:
then it can commit nothing more. Questions about rows of one journal that come while one is under
way are asked together.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from sharding_app.errors import PartiallyApplied, Rejected, ShardingError, Unavailable, to_wire
from sharding_app.ports.journal import Journal, JournalUnavailable
from sharding_app.protocol.delivery.foreign import Standing, before_the_handler
from sharding_app.protocol.delivery.outcome import NOT_PARKED, TAKEN, Outcome
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.messages import Deliver

LIST_ANEW = 1000
"""After this many commands came in hand, those that are over are left out."""


class InHand(Protocol):
    """A command that carries a foreign message."""

    message: Deliver

    @property
    def is_over(self) -> bool: ...


class _Batch:
    """Questions about rows that go to a journal together."""

    def __init__(self) -> None:
        self.messages: dict[str, None] = {}
        self.answer: asyncio.Future[dict[str, Standing]] = asyncio.get_running_loop().create_future()


class ForeignMessages:
    def __init__(
        self,
        name: str,
        journal: Journal,
        others: Callable[[str], Journal],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`name`: that of the journal of the entities; `others` returns another one by its name."""
        self.took: Callable[[ShardId], None] = lambda _: None
        "Called with a shard that may make a mark."
        self._name = name
        self._journal = journal
        self._others = others
        self._spawn = spawn
        self._in_hand: dict[str, list[InHand]] = {}
        "By message. Some may be over."
        self._count = 0
        self._batches: dict[str, _Batch] = {}
        "By journal: the questions that are asked next."
        self._asking: set[str] = set()

    def journal_of(self, message: Deliver) -> str | None:
        """Return the journal in which a message's row lies; None: it is that of its target."""
        delivery = message.delivery
        if delivery is None or delivery.journal == self._name:
            return None
        return delivery.journal

    # -- In hand -----------------------------------------------------------------------------------

    def hold(self, command: InHand) -> None:
        """Take a command in hand. Its row is asked for later."""
        if self._count >= LIST_ANEW:
            self.shards_in_hand()
            self._count = 0
        self._count += 1
        self._in_hand.setdefault(_id(command.message), []).append(command)
        self.took(command.message.shard)

    def is_in_hand(self, message: str) -> bool:
        return any(not each.is_over for each in self._in_hand.get(message, ()))

    def shards_in_hand(self) -> set[ShardId]:
        """Return the shards with a command in hand."""
        held = {
            message: [each for each in commands if not each.is_over]
            for message, commands in self._in_hand.items()
        }
        self._in_hand = {message: commands for message, commands in held.items() if commands}
        return {each.message.shard for commands in self._in_hand.values() for each in commands}

    # -- Before the handler ------------------------------------------------------------------------

    async def look(self, message: Deliver, journal: str) -> Outcome | ShardingError | None:
        """Ask for the row of a message in hand. None: its handler may run; otherwise the answer."""
        batch = self._batches.get(journal)
        if batch is None:
            batch = self._batches[journal] = _Batch()
            if journal not in self._asking:
                self._asking.add(journal)
                self._spawn(self._ask(journal))
        wanted = _id(message)
        batch.messages[wanted] = None
        try:
            found = await asyncio.shield(batch.answer)
        except JournalUnavailable as error:
            text = f"the journal {journal or 'of the cluster'!r} of this message does not answer: {error}"
            return Unavailable(text)
        return before_the_handler(found.get(wanted))

    async def _ask(self, journal: str) -> None:
        goes_on = False
        try:
            while (batch := self._batches.pop(journal, None)) is not None:
                try:
                    found = await self._others(journal).standing(list(batch.messages))
                except JournalUnavailable as error:
                    batch.answer.set_exception(error)
                    batch.answer.exception()  # each of those that wait may have been cancelled
                except BaseException:
                    batch.answer.cancel()
                    raise
                else:
                    batch.answer.set_result(found)
        except Exception:
            # A bug ends one question. Those that came meanwhile are asked all the same.
            goes_on = journal in self._batches
            raise
        except BaseException:
            if (late := self._batches.pop(journal, None)) is not None:
                late.answer.cancel()
            raise
        finally:
            if goes_on:
                self._spawn(self._ask(journal))
            else:
                self._asking.discard(journal)

    # -- Failures ----------------------------------------------------------------------------------

    def must_look(self, message: Deliver, error: ShardingError) -> bool:
        """Tell whether a failure waits for a look for a mark: its owner's home would act on it."""
        may_end_it = isinstance(error, Rejected) or not error.retryable
        return may_end_it and self.journal_of(message) is not None

    async def judged(self, message: Deliver, error: ShardingError) -> Outcome | ShardingError:
        """Return the answer to a foreign message that has failed."""
        found = _id(message)
        try:
            marks = await self._journal.marked([found])
        except JournalUnavailable as lost:
            text = f"{to_wire(error).message}; an earlier delivery may have taken effect, and the journal does not answer: {lost}"
            return Unavailable(text, code="fate_unknown")
        partial = marks.get(found)
        if partial is False:
            return TAKEN
        if partial or isinstance(error, PartiallyApplied):
            return PartiallyApplied(to_wire(error).message, params={**error.params, NOT_PARKED: True})
        return error


def _id(message: Deliver) -> str:
    assert message.delivery is not None  # noqa: S101
    return message.delivery.id

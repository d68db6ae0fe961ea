"""Commands with a caller's id: the journal is asked for an earlier attempt before they run.

Contract: the effect of a command happens once, and its first reply is given again, while its id is
remembered (the *window*). If an earlier attempt is still under way, the command waits in the
mailbox until that is over. A command older than the window is refused. Its age is counted by each
process on its own clock, never by wall clocks. A command that persisted nothing may run again. An
id that comes with another command, or with other arguments, is an error of the caller's. The
journal is not asked for an id that is known to be fresh (`runtime.execution.known_ids`).
"""

import asyncio
from collections.abc import Callable

from sharding_app.entities.entity_type import EntityType, Handler
from sharding_app.errors import InvalidCall, PartiallyApplied, ShardingError
from sharding_app.ports.journal import Journal, JournalUnavailable, Outcome
from sharding_app.protocol.command_ids import id_of_ours, is_ours
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import Deliver
from sharding_app.runtime.execution.known_ids import KnownIds
from sharding_app.runtime.journal.commits import Resident

RETRY_SECONDS = 0.1
CLOCK_DRIFT = 1.1
"""Clock rates of processes and server are assumed to differ by less than a tenth."""
ARGUMENTS = "#"
"""Separates a command's name from the digest of its arguments in the journal."""


def as_stored(message: Deliver, handler: Handler) -> str:
    """Return the text that the journal keeps beside a command's id.

    Without an id it needs no arguments.
    """
    if not message.command_id:
        return message.command
    arguments = handler.digest(message.args)
    return f"{message.command}{ARGUMENTS}{arguments}" if arguments else message.command


class EarlierAttempts:
    def __init__(
        self,
        entity_type: EntityType,
        type_id: int,
        journal: Journal,
        now: Callable[[], float],
        command_window_seconds: float,
    ) -> None:
        self.known = KnownIds(now)
        self._type = entity_type
        self._type_id = type_id
        self._journal = journal
        self._now = now
        self._window_ms = int(command_window_seconds * 1000)

    def is_fresh(self, slot: Resident, message: Deliver) -> bool:
        """Whether it is known here that no attempt can have left anything."""
        age_ms = self._age_ms(message)
        if is_ours(message.command_id) or age_ms > self._window_ms:
            return False
        return self.known.is_fresh(slot, message.command_id, (age_ms + self._window_ms) / 1000 * CLOCK_DRIFT)

    def note(self, slot: Resident, message: Deliver) -> None:
        """Note that a command's records go to the journal."""
        if message.command_id and not is_ours(message.command_id):
            self.known.note(slot, message.command_id)

    def is_too_old(self, message: Deliver) -> bool:
        """Whether the window of the command's id is over."""
        return self._age_ms(message) > self._window_ms

    def too_old(self, message: Deliver) -> ShardingError:
        text = f"{message.command} is older than the window in which its id is remembered: it is not repeated"
        return InvalidCall(text, code="too_old")

    def mismatch(
        self, slot: Resident, message: Deliver, found: Outcome, handler: Handler
    ) -> ShardingError | None:
        """Return the error if the earlier attempt has no reply for this command."""
        before, _, arguments = found.command.partition(ARGUMENTS)
        other = "" if before == message.command else repr(before)
        if not other and arguments not in ("", handler.digest(message.args)):
            other = f"{before!r} with other arguments"
        if other:
            text = f"command id {message.command_id!r} was used for {other} before: give each command its own"
            return InvalidCall(text, code="command_id_reused")
        if found.partial or found.reply is None:
            text = f"{self._type.name} {slot.id!r}: {message.command} had committed a part when its node died"
            return PartiallyApplied(text)
        return None

    def _age_ms(self, message: Deliver) -> int:
        return max(0, int(self._now() * 1000) - message.born_ms)

    async def outcome(self, slot: Resident, message: Deliver) -> Outcome | None:
        """Ask the journal for the outcome of earlier attempts.

        The look back covers the window of the command's id and not only the age of this call, since
        the caller may have called before. An id of our own belongs to one call.
        """
        window_ms = 0 if is_ours(message.command_id) else self._window_ms
        return await self._find(slot, message.command_id, message, window_ms)

    async def is_overtaken(self, slot: Resident, source: Incarnation, message: Deliver) -> bool:
        """Ask the journal whether later commands of its asker have taken effect.

        They were outstanding with it at a home that died. It may have refused this one before. What
        that home has not stored it never will, so each of them is asked for once.
        """
        if not message.later:
            return False
        if slot.left_nothing is None:
            slot.left_nothing = set()
        known = slot.left_nothing
        ids = [each if isinstance(each, str) else id_of_ours(source, each) for each in message.later]
        wanted = [each for each in ids if each not in known]
        found = await asyncio.gather(*(self._find(slot, each, message, 0) for each in wanted))
        known.update(each for each, outcome in zip(wanted, found, strict=True) if outcome is None)
        return any(outcome is not None for outcome in found)

    async def _find(
        self, slot: Resident, command_id: str, message: Deliver, window_ms: int
    ) -> Outcome | None:
        """Ask the journal for an id, back to a window before the message was called."""
        while True:
            age_ms = self._age_ms(message)
            age_ms = age_ms + window_ms if window_ms else int(age_ms * CLOCK_DRIFT)
            try:
                return await self._journal.outcome(self._type_id, slot.id, command_id, age_ms)
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

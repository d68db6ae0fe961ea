"""The commands of one type's entities: each envelope begins a `Command`, or is refused before.

An error around a handler costs its command and its object, and nothing else.
"""

from typing import Any

from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import InvalidCall, ShardingError
from sharding_app.protocol.builtin_commands import EXISTS, START
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import Deliver
from sharding_app.runtime.execution.beside import Beside, watched
from sharding_app.runtime.execution.command import ASKING, RUNNING, Command, Services
from sharding_app.runtime.journal.commits import LastCommit, NotCommitted, Resident


class Execution(Services):
    """Runs the commands of one type's entities in one process."""

    command_class: type[Command] = Command
    beside: Beside | None = None
    "Set for types with concurrent queries."

    def __init__(self, entity_type: EntityType, *args: Any, **kwargs: Any) -> None:
        super().__init__(entity_type, *args, **kwargs)
        if entity_type.concurrent:
            self.beside = Beside(self)
            self.command_class = watched(self.command_class)

    def run(self, slot: Resident, source: Incarnation, message: Deliver) -> bool:
        """Handle one envelope. True: the entity may go on; False: it stays busy with this one."""
        if not self.owner.may_begin(slot.shard):
            self.replies.hand_back(source, message)
            return True
        if slot.answers >= self.pipeline_limit and slot.tail is not None and not slot.passivating:
            self._wait(slot, slot.tail, source, message)
            return False
        command = self.command_class(self, slot, source, message)
        try:
            if message.deadline_ms and message.deadline_ms <= self.owner.now() * 1000:
                self.replies.expired(source, message)
                return True
            handler = self.commands.get(message.command)
            if handler is None and message.command in (EXISTS, START):
                command.value = b"1" if slot.seq else b""
                command.answer_seen()
                return True
            try:
                if handler is None:
                    handler = self.type.handler(message.command)  # raises, and names the commands there are
                if message.delivery is not None and handler.is_query:
                    raise InvalidCall(f"{handler.name} is a query: a durable message needs a command")
                args = handler.decode(message.args)
            except ShardingError as error:
                command.refuse(error)
                return True
            except BaseException as error:  # noqa: BLE001  (types of the user's take part in decoding)
                command.refuse(self.type.failed(slot.id, message.command, error))
                return True
            if message.delivery is not None:
                return command.deliver(handler, args)
            is_retryable = message.command_id and not handler.is_query and not self.is_memory
            if not is_retryable or (not message.later and self.earlier_attempts.is_fresh(slot, message)):
                return command.start(handler, args)
            command.ask(handler, args)
            return False
        except BaseException as error:  # noqa: BLE001  (else the envelopes behind this one would be lost with it)
            command.broke(error)
            return False

    def _wait(self, slot: Resident, tail: LastCommit, source: Incarnation, message: Deliver) -> None:
        """Let an envelope wait for a commit: as many answers wait already as a mailbox may hold."""
        self.owner.again(slot, source, message)
        generation = slot.generation

        def follow(why: NotCommitted | None) -> None:
            if generation == slot.generation:
                self.owner.finished(slot)

        tail.follow(follow)

    def put_back(self, slot: Resident) -> None:
        """Run the command that the journal is asked about next: its object was dropped.

        Otherwise later commands could run before its job notices.
        """
        command = self.waiting.get(slot)
        if command is not None and command.phase is ASKING:
            command.put_back()

    def give_up(self, slot: Resident) -> None:
        """Fail the running command, which is not waited for any longer."""
        command = self.waiting.get(slot)
        if command is not None and command.phase is RUNNING:
            del self.waiting[slot]
            command.give_up()

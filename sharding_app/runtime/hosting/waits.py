"""Entities here whose commands run for long: what they wait for, and who waits for them.

A shell around `protocol.deadlock`. Looks once a second at commands that have run for a second, so
ordinary calls cost nothing. Callers whose time is nearly over are told the reason, which their
`AskTimeout` names. One call of a circle is refused.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from sharding_app.errors import Unavailable
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.protocol import deadlock
from sharding_app.protocol.deadlock import Circle, Standing
from sharding_app.protocol.ids import Incarnation, ShardId
from sharding_app.protocol.messages import AnyMessage, Busy, Wait, WaitProbe
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.base.interfaces import NO_CALLER
from sharding_app.runtime.execution.command import RUNNING, Command
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.commits import Resident

logger = logging.getLogger("sharding.entity")

LOOK_SECONDS = 1.0
LONG_SECONDS = 1.0
"A command that has run for this time is looked at."
ANSWER_SECONDS = 0.5
"The server says this soon what a transaction waits for, or the callers are told without that."
NAMED = 3
"Most calls that a caller is told of."


class Waits:
    def __init__(
        self,
        me: Incarnation,
        host_at: Callable[[str, ShardId], TypeHost | None],
        hosts: Callable[[], Iterable[TypeHost]],
        client: RegionClient,
        try_send: Callable[[Incarnation, AnyMessage], bool],
        may_handle: Callable[[], bool],
    ) -> None:
        self._host_at = host_at
        self._hosts = hosts
        self._client = client
        self.askers = {me: client}
        "Processes by which entities here call: this one, or in the cluster of a test its client."
        self._try_send = try_send
        self._may_handle = may_handle
        self._next = 0.0
        self._asks = False
        "The server is asked what a transaction waits for."
        self._calls: dict[tuple[str, ...], list[tuple[Incarnation, PendingCall]]] | None = None
        "Made at most once between two looks: a newer call is found by the next one."

    def tick(self, now: float) -> None:
        if now < self._next:
            return
        self._next = now + LOOK_SECONDS
        self._calls = None
        if not self._may_handle():
            return
        for host in self._hosts():
            execution = host.execution
            for command in (*execution.waiting.values(), *execution.storing.values()):
                if command.began and now - command.began >= LONG_SECONDS and command.is_current():
                    self._look(host, command, now)

    def receive(self, probe: WaitProbe) -> None:
        """Take a probe further."""
        last = probe.way[-1]
        number = self._client.shard_of(last.type, last.entity)
        host = self._host_at(last.type, number)
        if host is None or not self._may_handle():
            return
        shard = host.shards.get(number)
        slot = None if shard is None else shard.slots.get(last.entity)
        command = None if slot is None else host.execution.waiting.get(slot)
        if slot is None or command is None or command.phase is not RUNNING or not command.is_current():
            return
        found = deadlock.follow(self._standing(command, self._waits_of(command)), probe)
        if isinstance(found, Circle):
            self._refuse(host, slot, probe, found)
        else:
            self._send(found)

    def _look(self, host: TypeHost, command: Command, now: float) -> None:
        waits = self._waits_of(command) if command.phase is RUNNING else []
        self._tell_callers(command, waits, now)
        if waits:
            self._send(deadlock.begin(self._standing(command, waits)))

    def _tell_callers(self, command: Command, waits: list[Wait], now: float) -> None:
        """Tell those whose time is over before the next look but one."""
        until = (now + 2 * LOOK_SECONDS) * 1000
        late: dict[Incarnation, list[int]] = {}
        for source, message in command.slot.mailbox or ():
            if 0 < message.deadline_ms <= until:
                late.setdefault(source, []).append(message.request)
        calls = [f"{each.type}/{each.entity}.{each.command}" for each in waits[:NAMED]]
        what = command.message.command, now - command.began
        rows = command.writes_rows
        told = [(source, Busy(requests, *what, calls=calls, rows=rows)) for source, requests in late.items()]
        if command.source != NO_CALLER and 0 < command.message.deadline_ms <= until:
            own = Busy([command.message.request], *what, running=True, calls=calls, rows=rows)
            told.append((command.source, own))
        if rows and told and not self._asks:
            self._asks = True
            command.services.owner.spawn(self._ask_and_tell(command, told))
        else:
            self._tell(told)

    def _tell(self, told: list[tuple[Incarnation, Busy]], blocked: str = "") -> None:
        for source, busy in told:
            self._try_send(source, msgspec.structs.replace(busy, blocked=blocked) if blocked else busy)

    async def _ask_and_tell(self, command: Command, told: list[tuple[Incarnation, Busy]]) -> None:
        """Ask the server what a transaction waits for, for one command at a time."""
        services, blocked = command.services, ""
        try:
            if services.together is not None:
                async with asyncio.timeout(ANSWER_SECONDS):
                    blocked = await services.together.held_up(services.type_id, command.slot.id)
        except (JournalUnavailable, TimeoutError):
            pass  # the callers learn the rest
        finally:
            self._asks = False
            self._tell(told, blocked)

    def _waits_of(self, command: Command) -> list[Wait]:
        """Return the calls that a running command waits for now.

        The chain of a call names the commands that led to it. A call that is older than the command
        was left behind by an earlier one.
        """
        if self._calls is None:
            self._calls = {}
            for asker, client in self.askers.items():
                for chain, calls in client.calls_by_chain().items():
                    self._calls.setdefault(chain, []).extend((asker, each) for each in calls)
        message = command.message
        mine = self._calls.get((*message.chain, f"{message.type}/{command.slot.id}"), ())
        return [
            Wait(asker, each.request, each.home, each.call.type, each.call.entity, each.call.command)
            for asker, each in mine
            if each.born >= command.began and each.home is not None and self.askers[asker].waits_for(each)
        ]

    def _standing(self, command: Command, waits: list[Wait]) -> Standing:
        message, slot = command.message, command.slot
        queued = {
            (source, each.request) for source, each in slot.mailbox or () if each.chain and each.deadline_ms
        }
        return Standing(message.type, slot.id, (command.source, message.request), queued, waits)

    def _send(self, probes: list[WaitProbe]) -> None:
        for probe in probes:
            self._try_send(probe.way[-1].home, probe)

    def _refuse(self, host: TypeHost, slot: Resident, probe: WaitProbe, circle: Circle) -> None:
        """Refuse the last call of a circle, which waits here and has not begun."""
        last = circle.way[-1]
        work = slot.shard.withdraw_call(slot, last.caller, last.request)
        if work is None:
            return
        host.backlog.taken(*work)
        host.meter.trouble(slot.id, last.command, "deadlock")
        way = [f"{probe.type}/{probe.entity}"]
        way += [f"{each.type}/{each.entity}.{each.command}" for each in circle.way]
        logger.warning(
            "a call of %s.%s was refused: its caller and its entity waited for each other", last.type, last.command,
            extra={"action": "deadlock", "entity_type": last.type, "command": last.command},
        )  # fmt: skip
        text = (
            f"a deadlock, each waits for the next one: {' -> '.join(way)}. This call is refused so that the"
            " others go on: call in one direction only, or use .tell() or self.send() for one of them"
        )
        host.execution.replies.refuse(*work, Unavailable(text, code="deadlock"))

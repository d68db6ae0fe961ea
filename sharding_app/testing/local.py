"""`LocalHost`: one entity alone in memory, hosted exactly by the contract in `types`, without a
cluster.

The test kit stands on it ("given events, when command, then events, reply, state"). It shows a host
all its duties: check, run, encode the reply, commit, answer; after a failure drop the staged events
and rebuild. `LocalGateway` holds one for each id, so that refs work. Concurrent calls are not
queued: await one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sharding_app.entities.context import EntityContext
from sharding_app.entities.entity_type import EntityType, Handler
from sharding_app.entities.messages import decode_message, encode_message
from sharding_app.entities.registry import registry
from sharding_app.entities.staging import Record, Staging
from sharding_app.errors import PartiallyApplied, ShardingError
from sharding_app.protocol.builtin_commands import EXISTS
from sharding_app.protocol.call import Call


class LocalHost:
    """One entity, with a list as its journal. Give it the history it starts from."""

    def __init__(
        self,
        entity: type[Any] | EntityType,
        entity_id: str = "1",
        *,
        events: Iterable[object] = (),
        state: bytes | None = None,
        context: EntityContext | None = None,
    ) -> None:
        self.entity_type = entity if isinstance(entity, EntityType) else entity._sharding_type
        self.entity_id = entity_id
        #: Journal records of all committed events: name, version, JSON.
        self.journal: list[tuple[str, int, bytes]] = [
            self.entity_type.event_codec.encode(event) for event in events
        ]
        #: The state that was stored last: the given one, or a later one of a durable-state entity.
        self.stored: bytes | None = state
        #: The events of the last command.
        self.events: list[object] = []
        self._context = context
        self._staging = Staging(self._commit)
        self._commits = 0
        self.entity = self._recovered()
        if self.stored is None and self.entity_type.kind == "durable_state":
            self.stored = self.entity_type.dump_state(self.entity)

    async def run(self, command: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a handler as a ref does, arguments and reply encoded both ways."""
        handler = self.entity_type.handler(command)
        return handler.decode_result(await self.handle(command, handler.encode(args, kwargs)))

    async def handle(self, command: str, raw: bytes) -> bytes:
        """Return the encoded reply to a call with encoded arguments."""
        handler = self.entity_type.handler(command)
        args = handler.decode(raw)
        with_staging = self._staging if not handler.is_query else None
        reply: bytes = await self._guarded(command, with_staging, handler, args)
        return reply

    async def receive(self, message: object) -> Any:
        """Give the entity a plain message, after a round trip through its codec."""
        return await self._guarded(
            type(message).__qualname__, self._staging, None, (decode_message(*encode_message(message)),)
        )

    def state(self) -> bytes:
        """Return the present state as JSON."""
        return self.entity_type.dump_state(self.entity)

    async def _guarded(
        self, name: str, staging: Staging | None, handler: Handler | None, args: tuple[Any, ...]
    ) -> Any:
        self.events, self._commits = [], 0
        self.entity._sharding_staging = staging
        try:
            result = await self._called(handler, args)
            if self._staging.broken is not None:
                raise self._staging.broken
            reply = result if handler is None else handler.encode_result(result)
            if staging is not None:
                await self._commit(staging)
            return reply
        except Exception as error:
            self._staging.clear()
            self.entity = self._recovered()
            raise self._typed(name, error) from error
        finally:
            self.entity._sharding_staging = None

    async def _called(self, handler: Handler | None, args: tuple[Any, ...]) -> Any:
        if handler is None:
            result = self.entity.receive(*args)
            return await result if inspect.isawaitable(result) else result
        if handler.thread:
            return await asyncio.to_thread(handler.function, self.entity, *args)
        result = handler.function(self.entity, *args)
        return await result if handler.is_async else result

    async def _commit(self, staging: Staging) -> None:
        functions, records = staging.in_transaction, staging.records
        state = self.entity_type.dump_state(self.entity) if self._is_durable() else None
        for function in functions:
            await asyncio.to_thread(function)
        self._append(records)
        if records or functions or (state is not None and state != self.stored):
            self._commits += 1
        self.stored = self.stored if state is None else state
        staging.clear()

    def _append(self, records: list[Record]) -> None:
        for name, version, data, event in records:
            self.journal.append((name, version, data))
            self.events.append(event)

    def _is_durable(self) -> bool:
        return self.entity_type.kind == "durable_state"

    def _recovered(self) -> Any:
        entity = self.entity_type.new(self.entity_id, self._context)
        if self.stored is not None:
            self.entity_type.load_state(entity, self.stored)
        rows = ((number, *record) for number, record in enumerate(self.journal, 1))
        self.entity_type.replay(entity, rows)
        return entity

    def _typed(self, name: str, error: Exception) -> ShardingError:
        failure = self.entity_type.failed(self.entity_id, name, error)
        if not self._commits:
            return failure
        return PartiallyApplied(
            f"{failure.message} (what it had awaited before is stored)", params=failure.params
        )


class LocalGateway:
    """Answers all refs of the process from `LocalHost` objects: ``with use_gateway(LocalGateway()):
    ...``.
    """

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], LocalHost] = {}

    def host(self, type_name: str, entity_id: str) -> LocalHost:
        """Return the host of one entity, made at first use."""
        key = (type_name, entity_id)
        found = self._hosts.get(key)
        if found is None:
            found = self._hosts[key] = LocalHost(registry.get(type_name), entity_id)
        return found

    async def ask(self, call: Call) -> bytes:
        """As in `gateway.Gateway`."""
        if call.command == EXISTS:
            return b"1" if (call.type, call.entity) in self._hosts else b""
        return await self.host(call.type, call.entity).handle(call.command, call.args)

    def ask_sync(self, call: Call) -> bytes:
        """As in `gateway.Gateway`."""
        return asyncio.run(self.ask(call))

    def tell(self, call: Call) -> None:
        """Run the command before returning, on a thread of its own; as in a cluster, an error
        reaches no caller.
        """
        with ThreadPoolExecutor(1) as thread, contextlib.suppress(ShardingError):
            thread.submit(self.ask_sync, call).result()

"""`ref.close.durably()` and `.later()`: messages and timers from outside, in the caller's own
transaction.

A row of the application and the message commit together, or neither does. Outside of `atomic()` the
message gets a transaction of its own. The target's home learns of it after the commit.
"""

import uuid
from collections.abc import Callable
from contextlib import nullcontext

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.backends.utils import CursorWrapper

from sharding_app.adapters.django.database import commits, no_commits, run_query
from sharding_app.adapters.django.sealing import sealed_args
from sharding_app.adapters.personal.vault import Vault
from sharding_app.entities import transactions
from sharding_app.entities.registry import registry
from sharding_app.entities.staging import StagedMessage
from sharding_app.errors import Unavailable, WrongContext
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.numbering import Numbering


class DjangoOutside:
    """`client.gateway.Outside` on Django's connection to the cluster's database."""

    def __init__(self, alias: str, vault: Vault | None = None) -> None:
        self._alias = alias
        self._vault = vault

    def store(self, message: StagedMessage, wake: Callable[[], None]) -> None:
        transactions.refuse_other(
            self._alias, f"{message.command} of {message.target_type} {message.target!r}"
        )
        if not commits(self._alias):
            raise WrongContext(no_commits(self._alias), code="no_commits")
        connection = connections[self._alias]
        # After an error in a block of our own Django would roll the caller's transaction back
        # without a word, though the caller has caught that error.
        is_within = connection.in_atomic_block
        with nullcontext() if is_within else transaction.atomic(using=self._alias):
            try:
                with connection.cursor() as cursor:
                    _insert(cursor, message, sealed_args(cursor, self._vault, message))
            except (DatabaseError, InterfaceError):
                if is_within:  # the server takes nothing more of it
                    transaction.set_rollback(True, using=self._alias)
                raise
            transaction.on_commit(wake, using=self._alias, robust=True)

    async def store_async(self, message: StagedMessage, wake: Callable[[], None]) -> None:
        await sync_to_async(self.store)(message, wake)


def place_of(cursor: CursorWrapper, type_name: str, entity: str) -> tuple[int, ShardId]:
    """Return the number of a type, and the shard of an entity. Raises Unavailable."""
    known = run_query(cursor, "type_outside", {"name": type_name})
    if not known:
        raise Unavailable(
            f"no node has hosted {type_name!r} yet: start `manage.py sharding_node`", code="no_host"
        )
    ((type_id, *numbers, rule),) = known
    extractor = registry.get(type_name).extractor
    if extractor is None or rule.startswith("hash:"):
        return type_id, Numbering(*numbers).shard_of(entity)
    return type_id, extractor.checked_shard_id(entity)


def _insert(cursor: CursorWrapper, message: StagedMessage, args: bytes) -> None:
    type_id, shard = place_of(cursor, message.target_type, message.target)
    run_query(
        cursor,
        "store_outside",
        {
            "id": uuid.uuid4().hex,
            "type_id": type_id,
            "shard": shard,
            "target_type": message.target_type,
            "target": message.target,
            "command": message.command,
            "args": args,
            "at": message.at,
            "delay": message.delay,
            "key": message.key,
        },
    )

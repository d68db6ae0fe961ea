"""The models show what the cluster writes, and change nothing."""

import asyncio
from typing import Any, NoReturn

import pytest
from django.apps import apps
from django.db import connection, models

from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.models import (
    Cluster,
    Coordinator,
    EntityType,
    Event,
    HeldEntity,
    Lease,
    Node,
    ProjectionPosition,
    ProjectionVersion,
    ReadOnlyError,
    RememberedEntity,
    Shard,
    Snapshot,
    TakenMessage,
)
from sharding_app.models import Decision as TimelineLine
from sharding_app.ports import journal as ports
from sharding_app.protocol.records import Decision, HomeChange
from tests.support.given import CART, event_row, member

MODELS: list[type[models.Model]] = [
    Cluster, Coordinator, EntityType, Event, HeldEntity, Lease, Node, ProjectionPosition, ProjectionVersion,
    RememberedEntity, Shard, Snapshot, TakenMessage, TimelineLine,
]  # fmt: skip
PAYLOAD = b'{"huge": 123456789012345678901234567890, "float": 1.10}'


async def write(params: dict[str, Any]) -> None:
    """Write a row of most kinds, as a node does."""
    store, journal = PostgresStore(params), PostgresJournal(params)
    await store.cluster_id()
    numbers, _ = await store.register_types([CART])
    number = numbers[CART.name]
    await store.join(member("a", roles=("backend",)), (1, 2))
    await store.decide(1, [HomeChange(CART.name, 0, 0, 1, "a", "home")])
    await store.record([Decision("allocated", "shop.Cart/0")])
    await journal.append([event_row(number, "alice", 1, payload=PAYLOAD, reply=b"\x01")])
    await journal.save_snapshots([ports.Snapshot(number, "alice", 1, 0, 1, PAYLOAD)])
    await journal.close()
    await store.close()


@pytest.fixture
def rows(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO sharding_coordinator (term, incarnation) VALUES (1, 'a')")
    asyncio.run(write(from_django_settings(connection.settings_dict)))


@pytest.mark.usefixtures("rows")
def test_rows_are_shown_as_they_were_written() -> None:
    event = Event.objects.select_related("type").get(entity="alice")
    assert event.payload == PAYLOAD.decode()
    assert bytes(event.reply) == b"\x01"
    assert str(event.type) == CART.name
    assert event.pk == (event.type_id, "alice", 1)
    assert event.at.tzinfo is not None
    assert Snapshot.objects.get().state == PAYLOAD.decode()
    assert Node.objects.get().roles == ["backend"]
    assert Shard.objects.get().home == "a"
    assert Coordinator.objects.get().term == 1
    assert TimelineLine.objects.get().term == 1
    assert EntityType.objects.get().shards.count() == 1
    assert str(Cluster.objects.get()) == Cluster.objects.get().cluster_id


def test_each_column_of_a_table_that_has_a_key_is_in_a_model(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, array_agg(a.attname::text) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped"
            " AND c.relnamespace = current_schema()::regnamespace AND EXISTS"
            " (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) GROUP BY c.relname"
        )
        tables = {
            table: set(columns) for table, columns in cursor.fetchall() if table.startswith("sharding_")
        }
    found = {each._meta.db_table: each for each in apps.get_app_config("sharding").get_models()}
    assert tables.keys() == found.keys()
    for table, columns in tables.items():
        modelled = {field.column for field in found[table]._meta.concrete_fields if field.column}
        assert modelled == columns, table


@pytest.mark.usefixtures("rows")
def test_a_row_can_neither_be_saved_nor_deleted() -> None:
    node = Node.objects.get()
    with pytest.raises(ReadOnlyError, match="Node is read-only"):
        node.save()
    with pytest.raises(ReadOnlyError):
        node.delete()
    assert Node.objects.count() == 1


def writes(queryset: Any) -> dict[str, Any]:
    return {
        "create": lambda: queryset.create(),
        "bulk_create": lambda: queryset.bulk_create([]),
        "bulk_update": lambda: queryset.bulk_update([], ["x"]),
        "get_or_create": lambda: queryset.get_or_create(),
        "update_or_create": lambda: queryset.update_or_create(),
        "update": lambda: queryset.update(),
        "delete": lambda: queryset.delete(),
        "select_for_update": lambda: queryset.select_for_update(),
    }


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("way", sorted(writes(None)))
def test_no_queryset_writes(model: type[models.Model], way: str) -> None:
    manager: Any = model._default_manager
    with pytest.raises(ReadOnlyError, match=model.__name__):
        writes(manager.all())[way]()
    if way != "delete":  # a manager has none
        with pytest.raises(ReadOnlyError):
            writes(manager)[way]()


@pytest.mark.parametrize(
    "way",
    ["acreate", "abulk_create", "abulk_update", "aget_or_create", "aupdate_or_create", "aupdate", "adelete"],
)
def test_no_queryset_writes_asynchronously(way: str) -> None:
    async def write() -> NoReturn:
        await getattr(Node.objects.all(), way)()
        raise AssertionError("it was written")

    with pytest.raises(ReadOnlyError):
        asyncio.run(write())


def test_the_models_read_from_the_clusters_alias(settings: Any) -> None:
    settings.SHARDING = {**settings.SHARDING, "DATABASE": "elsewhere"}
    assert Node.objects.all().db == "elsewhere"
    assert Node.objects.using("default").db == "default"
    assert Node.objects.db_manager("default").all().db == "default"

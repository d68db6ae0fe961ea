"""Rows of a small cluster, and people with various permissions."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client

from sharding_app.protocol.ids import shard_of

CART, GONE = 1, 2
"Numbers of two types; of the second one the code is gone."
SHARDS = 10

Person = Callable[..., Client]


EVENTS = [
    *(("alice", seq, "book", seq) for seq in range(1, 6)),
    *((f"user-{each:03}", 1, "pen", 1) for each in range(120)),
    ("a/b?c#d e", 1, "pen", 1),
    ("<script>alert(1)</script>", 1, "<b>bold</b>", 1),
]


@pytest.fixture
def rows(db: None) -> None:
    """A cluster of three nodes by its rows; none of them runs."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO sharding_cluster (cluster_id) VALUES ('c1')")
        cursor.execute(
            "INSERT INTO sharding_coordinator (term, incarnation, elected_at) VALUES (1, 'n-a', now())"
        )
        cursor.executemany(
            "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES (%s, %s, 'event_sourced', %s, 'hash:crc32-1', 'crc32-1', '', 'postgres')",
            [(CART, "shop.Cart", SHARDS), (GONE, "shop.Gone", 4)],
        )
        cursor.executemany(
            "INSERT INTO sharding_node (incarnation, name, host, pid, age, state, types, lock_key_1, lock_key_2)"
            " VALUES (%s, %s, 'here', 42, %s, 'up', '[\"shop.Cart\"]', %s, %s)",
            [(f"n-{name}", f"node-{name}", number, number, -number) for number, name in enumerate("abc", 1)],
        )
        cursor.executemany(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (%s, %s, 1, %s, 'home')",
            [(CART, shard, f"n-{'abc'[shard % 3]}") for shard in range(SHARDS)],
        )
        cursor.executemany(
            "INSERT INTO sharding_event"
            " (type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply)"
            " VALUES (%s, %s, %s, %s, 1, 'ItemAdded', 1, %s, %s, 'add', 'x')",
            [
                (
                    CART,
                    entity,
                    seq,
                    shard_of(entity, SHARDS),
                    json.dumps({"sku": sku, "quantity": count}),
                    f"c{seq}",
                )
                for entity, seq, sku, count in EVENTS
            ],
        )
        cursor.execute(
            "INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)"
            """ VALUES (%s, 'alice', 2, %s, 1, '{"items":{"book":3}}')""",
            [CART, shard_of("alice", SHARDS)],
        )
        cursor.execute(
            "INSERT INTO sharding_decision (action, subject, detail, term)"
            " VALUES ('coordinator_elected', 'n-a', 'term 1', 1), ('node_up', 'n-b', 'node-b', 1)"
        )


def add_projection() -> None:
    """Add `shop.Open` 1 by its rows, in two parts: one change is not handled, `alice` is parked at
    event 4, and `bob` is tried again.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_projection (id, name, version, type_ids, live, server)"
            " SELECT 7, 'shop.Open', 1, %s, true, system_identifier::text FROM pg_control_system()",
            [[CART]],
        )
        cursor.execute(
            "INSERT INTO sharding_position (projection_id, first_slice, last_slice, position, events)"
            " VALUES (7, 0, 63, '1:1:', 1000), (7, 64, 127, '1:1:', 234)"
        )
        cursor.execute(
            "INSERT INTO sharding_change (type_id, xid, at, events, entities, slices, firsts, lasts)"
            " VALUES (%s, '2', now() - interval '10 min', 3, '{carol}', '{1}', '{1}', '{3}')",
            [CART],
        )
        cursor.executemany(
            "INSERT INTO sharding_held (projection_id, type_id, entity, slice, next, failures, parked, error)"
            " VALUES (7, %s, %s, 1, %s, %s, %s, 'ValueError: the shelf is empty')",
            [(CART, "alice", 4, 5, True), (CART, "bob", 1, 1, False)],
        )


@pytest.fixture
def person(db: None) -> Person:
    """Return a browser of a staff user who has these permissions and no others."""

    def make(*codenames: str, staff: bool = True) -> Client:
        user = get_user_model().objects.create_user(
            username=f"user{get_user_model().objects.count()}", password="x", is_staff=staff
        )
        found = Permission.objects.filter(content_type__app_label="sharding", codename__in=codenames)
        assert len(found) == len(codenames), codenames
        user.user_permissions.set(found)
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def root(db: None) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root", password="x"))
    return client

"""Fills a running cluster with something to look at, and makes people: `python -m
tests.browser.seed`, JSON comes out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from importlib import import_module
from itertools import count
from typing import Any

import django
import msgspec
from django.conf import settings

CARTS = 300
READINGS = 45
PERMISSIONS = {
    "viewer": "view_cluster",
    "rebalancer": "view_cluster rebalance_shards",
    "mover": "view_cluster move_shard",
    "drainer": "view_cluster drain_node",
    "closer": "view_cluster shut_down_node",
    "stopper": "view_cluster stop_entity",
    "retrier": "view_cluster retry_message",
    "discarder": "view_cluster discard_message",
    "stranger": "",
}
"""People, and what they may."""


async def _entities(carts: int) -> None:
    from project.shop.entities import Cart
    from sharding_app import EntityFailed
    from tests.browser.app.entities import Forecast, Ring, Station, bell

    for first in range(0, carts, 500):
        await asyncio.gather(
            *(
                Cart.ref(f"customer-{each:05}").add("book", 1)
                for each in range(first, min(carts, first + 500))
            )
        )
    for number in range(READINGS):
        await Station.ref("oslo").measure(number / 2 - 5, "storm" if number % 10 == 3 else "")
    for sku in ("tea", "pot", "tea"):
        await Cart.ref("alice").add(sku, 2)
    await Forecast.ref("bergen").say("Rain, as always.")
    await Station.ref("malmo").measure.later(timedelta(days=1), 21.0, "dry")
    await bell.ask(Ring())
    try:
        await Station.ref("bergen").calibrate()
    except EntityFailed:
        print("a calibration has failed, as it should", file=sys.stderr)


def _rows() -> dict[str, Any]:
    """What has gone wrong elsewhere: a type without code, an event that its code cannot read."""
    from django.db import connection

    from sharding_app.protocol.ids import shard_of

    with connection.cursor() as cursor:
        cursor.execute("SELECT name, id, number_of_shards FROM sharding_type")
        types = {name: (number, shards) for name, number, shards in cursor.fetchall()}
        cursor.execute(
            "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " SELECT 'weather.Balloon', kind, 10, extractor, hash_version, 'lost', store_mode"
            " FROM sharding_type WHERE name = 'shop.Cart' RETURNING id"
        )
        balloon = cursor.fetchone()[0]
        station, shards = types["weather.Station"]
        home = shard_of("oslo", shards)
        garbled = next(name for name in map("garbled-{}".format, count()) if shard_of(name, shards) == home)
        _event(cursor, station, garbled, home, '{"kelvin": 7}')
        cursor.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (%s, %s, 1, NULL, 'stopped')",
            [balloon, shard_of("red", 10)],
        )
        _event(cursor, balloon, "red", shard_of("red", 10), '{"metres": 99}')
        cursor.execute("DELETE FROM sharding_shard WHERE type_id = %s", [balloon])
        for message, entity in (("seed-parked", "malmo"), ("seed-again", "lund"), ("seed-unwanted", "lund")):
            cursor.execute(
                "INSERT INTO sharding_message (id, type_id, shard, entity, seq, position, target_type, target, command, args,"
                " due, failures, parked, error)"
                " VALUES (%s, %s, %s, %s, 1, 0, 'weather.Station', %s, 'measure', %s, now(), 10, true, %s)",
                [message, station, shard_of(entity, shards), entity, entity, msgspec.msgpack.encode([7.5, "hail"]),
                 "entity_failed: the reference is gone"],
            )  # fmt: skip
        _projection(cursor, station)
    numbers = {name: number for name, (number, _) in types.items()}
    return {"types": {**numbers, "weather.Balloon": balloon}, "garbled": garbled}


def _projection(cursor: Any, station: int) -> None:
    """Add a projection whose class is gone: in two parts, late, with an entity that is parked."""
    cursor.execute(
        "WITH made AS (INSERT INTO sharding_projection (name, version, type_ids, live, server)"
        " SELECT 'weather.Extremes', 1, ARRAY[%s::integer], true, system_identifier::text FROM pg_control_system() RETURNING id),"
        " placed AS (INSERT INTO sharding_position (projection_id, first_slice, last_slice, position, events)"
        " SELECT id, first, first + 63, '1:1:', 1200 + first FROM made, unnest('{0,64}'::smallint[]) AS part (first))"
        " INSERT INTO sharding_held (projection_id, type_id, entity, slice, next, failures, parked, error)"
        " SELECT id, %s, 'malmo', 3, 4, 5, true, 'ValueError: the thermometer is stuck' FROM made",
        [station, station],
    )
    cursor.execute(
        "INSERT INTO sharding_change (type_id, xid, at, events, entities, slices, firsts, lasts)"
        " VALUES (%s, '2', now() - interval '10 min', 3, '{malmo}', '{3}', '{4}', '{6}')",
        [station],
    )


def _event(cursor: Any, number: int, entity: str, shard: int, payload: str) -> None:
    cursor.execute(
        "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id, command)"
        " SELECT %s, %s, 1, %s, epoch, 'Measured', 1, %s, 'seed', 'measure' FROM sharding_shard"
        " WHERE type_id = %s AND shard = %s",
        [number, entity, shard, payload, number, shard],
    )


def _people() -> dict[str, str]:
    """Sessions by name: a browser with one is logged in."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.contrib.auth.models import Permission

    users = get_user_model()._default_manager
    users.create_superuser(username="root", email=None, password=None)
    for name, granted in PERMISSIONS.items():
        user = users.create_user(username=name, is_staff=True)
        user.user_permissions.set(
            Permission.objects.filter(content_type__app_label="sharding", codename__in=granted.split())
        )
    store = import_module(settings.SESSION_ENGINE).SessionStore
    sessions = {}
    for name in ("root", *PERMISSIONS):
        user = users.get(username=name)
        session = store()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.save()
        sessions[name] = session.session_key
    return sessions


def main() -> None:
    django.setup()
    carts = int(sys.argv[1]) if len(sys.argv) > 1 else CARTS
    asyncio.run(_entities(carts))
    print(json.dumps({**_rows(), "sessions": _people()}))


if __name__ == "__main__":
    main()

"""This process as a client of a node whose output can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import override_settings

from project.settings.urls import database
from sharding_app.embedded.ports import free_port
from sharding_app.testing import modes
from tests.support.live import Live, Program

KEY = "a-key-that-nobody-else-should-ever-see"
TOKEN = "a-token-that-lets-one-read-the-metrics"
SHARDING = {"KEYS": [KEY], "METRICS_TOKEN": TOKEN, "LINKS": "channel_layer"}
"""All frames go through Redis, where a stranger may hear and repeat them."""
PRODUCTION = {"DJANGO_SETTINGS_MODULE": "tests.security.settings", "TEST_SHARDING": json.dumps(SHARDING)}


@pytest.fixture
def quiet_node(live_tables: Live) -> Iterator[tuple[Live, Program]]:
    """A node with a key, and refs of this process that lead to it."""
    settings.DATABASES["live"] = database(live_tables.database_url)
    settings.CHANNEL_LAYERS["live"] = {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": live_tables.redis_url, "socket_timeout": None}]},
    }
    try:
        with live_tables.program(
            "sharding_node", "--name", "quiet", f"--health-port={free_port()}", **PRODUCTION
        ) as node:
            node.wait_line("^node quiet is up$")
            with (
                override_settings(SHARDING={"DATABASE": "live", "CHANNEL_LAYER": "live", **SHARDING}),
                modes.real(),
            ):
                yield live_tables, node
    finally:
        del settings.DATABASES["live"]
        del settings.CHANNEL_LAYERS["live"]

"""This process as a client of the live cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import override_settings

from project.settings.urls import database
from sharding_app.testing import modes
from tests.support.live import Live
from tests.support.slack import PATIENT


@pytest.fixture
def client(live_cluster: Live) -> Iterator[Live]:
    """Let refs of this process lead to the live cluster."""
    # One more alias, for a while: the aliases that are there belong to Django's own connections.
    settings.DATABASES["live"] = database(live_cluster.database_url)
    settings.CHANNEL_LAYERS["live"] = {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": live_cluster.redis_url, "socket_timeout": None}]},
    }
    try:
        with (
            override_settings(SHARDING={**PATIENT, "DATABASE": "live", "CHANNEL_LAYER": "live"}),
            modes.real(),
        ):
            yield live_cluster
    finally:
        del settings.DATABASES["live"]
        del settings.CHANNEL_LAYERS["live"]

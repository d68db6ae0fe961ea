"""The public test kit and pytest plugin: single entities, in-memory clusters, virtual time, faults.

The names are imported at first use: the plugin is loaded before Django is set up.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharding_app.testing.clock import Clock as Clock
    from sharding_app.testing.cluster import MemoryCluster as MemoryCluster
    from sharding_app.testing.entity import given as given
    from sharding_app.testing.live import LiveBrowser as LiveBrowser
    from sharding_app.testing.projection import project as project
    from sharding_app.testing.thread import ClusterThread as ClusterThread

_HOMES = {
    "Clock": "clock",
    "ClusterThread": "thread",
    "LiveBrowser": "live",
    "MemoryCluster": "cluster",
    "given": "entity",
    "project": "projection",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)

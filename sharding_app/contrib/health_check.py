"""For projects that use django-health-check (4 or newer): a check of the cluster, beside their
others::

HealthCheckView.as_view(checks=["sharding_app.contrib.health_check.ShardingHealthCheck", ...])
"""

import asyncio
import dataclasses

from django.db import close_old_connections
from health_check.base import HealthCheck
from health_check.exceptions import ServiceUnavailable

from sharding_app.operations.cache import Look, Unreachable, collector
from sharding_app.operations.status import findings


@dataclasses.dataclass
class ShardingHealthCheck(HealthCheck):  # type: ignore[misc] # it ships no types
    """The cluster has a coordinator and nodes that are up, and this process is connected to it."""

    async def run(self) -> None:
        """Read the cluster; raise ServiceUnavailable with its problems."""
        try:
            look = await asyncio.to_thread(_look)
        except Unreachable as error:
            raise ServiceUnavailable(str(error)) from error
        problems = [
            each.what for each in findings(look.cluster, look.answers, look.trouble) if each.is_severe
        ]
        if problems:
            raise ServiceUnavailable(" ".join(problems))


def _look() -> Look:
    """Look with Django's connections of this thread, as a request does."""
    close_old_connections()
    try:
        return collector.look()
    finally:
        close_old_connections()

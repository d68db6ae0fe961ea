"""For projects that use django-health-check (4 or newer): a check of the cluster, beside their others::

HealthCheckView.as_view(checks=["sharding_app.http.health_check.ShardingHealthCheck", ...])
"""

import asyncio
import dataclasses

from health_check.base import HealthCheck
from health_check.exceptions import ServiceUnavailable

from sharding_app.http.collector import Unreachable, collector
from sharding_app.http.problems import problems


@dataclasses.dataclass
class ShardingHealthCheck(HealthCheck):  # type: ignore[misc] # it ships no types
    """The cluster has a coordinator and nodes that are up, and this process is connected to it."""

    async def run(self) -> None:
        """Look at the cluster. Raises ServiceUnavailable with what is wrong."""
        try:
            look = await asyncio.to_thread(collector.look)
        except Unreachable as error:
            raise ServiceUnavailable(str(error)) from error
        found = problems(look)
        if found:
            raise ServiceUnavailable(" ".join(found))

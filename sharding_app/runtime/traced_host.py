"""The shards of one type with spans of their hand-offs (see `runtime.traced`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sharding_app.core.ids import Epoch, ShardId
from sharding_app.core.shard import Shard
from sharding_app.runtime import tracing
from sharding_app.runtime.host import Host
from sharding_app.runtime.traced import active_tracer

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class TracedHost(Host):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._tracer = active_tracer()
        self._handing_off: dict[ShardId, Span] = {}

    def stop_shard(self, number: ShardId, epoch: Epoch) -> None:
        shard = self.shards.get(number)
        if shard is not None and shard.epoch == epoch and number not in self._handing_off:
            about: tracing.Attributes = {
                "type": self.type.name,
                "shard": number,
                "entities": len(shard.slots),
            }
            self._handing_off[number] = self._tracer.start(f"hand-off {self.type.name}", "internal", about)
        super().stop_shard(number, epoch)

    def _shard_stopped(self, shard: Shard) -> None:
        super()._shard_stopped(shard)
        span = self._handing_off.pop(shard.number, None)
        if span is not None:
            span.end()


def host_class() -> type[Host]:
    """What hosts a type here."""
    return Host if tracing.active is None else TracedHost

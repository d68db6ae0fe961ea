"""The workloads by name, in their order when none is named."""

from sharding_app.bench.run import Workload
from sharding_app.bench.workloads.asks import ask, durable, hot, wide
from sharding_app.bench.workloads.django_orm import django
from sharding_app.bench.workloads.flood import flood
from sharding_app.bench.workloads.idle import idle
from sharding_app.bench.workloads.keeping import memory, recover
from sharding_app.bench.workloads.large import large
from sharding_app.bench.workloads.live import live
from sharding_app.bench.workloads.long_history import long_history
from sharding_app.bench.workloads.messages import messages
from sharding_app.bench.workloads.moving import failover, rebalance
from sharding_app.bench.workloads.projection import projection
from sharding_app.bench.workloads.remembered import remembered
from sharding_app.bench.workloads.scale import scale
from sharding_app.bench.workloads.soak import soak
from sharding_app.bench.workloads.starved import starved
from sharding_app.bench.workloads.timers import timers

WORKLOADS: dict[str, Workload] = {
    "ask": ask,
    "durable": durable,
    "django": django,
    "hot": hot,
    "wide": wide,
    "recover": recover,
    "long-history": long_history,
    "large": large,
    "messages": messages,
    "timers": timers,
    "projection": projection,
    "remembered": remembered,
    "memory": memory,
    "failover": failover,
    "rebalance": rebalance,
    "scale": scale,
    "live": live,
    "idle": idle,
    "flood": flood,
    "soak": soak,
    "starved": starved,
}

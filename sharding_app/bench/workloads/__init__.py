"""The workloads by name, in the order in which they run when none is named."""

from sharding_app.bench.run import Workload
from sharding_app.bench.workloads.asks import ask, durable, hot, wide
from sharding_app.bench.workloads.django_orm import django
from sharding_app.bench.workloads.idle import idle

WORKLOADS: dict[str, Workload] = {
    "ask": ask,
    "durable": durable,
    "django": django,
    "hot": hot,
    "wide": wide,
    "idle": idle,
}

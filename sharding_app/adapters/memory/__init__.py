"""Verified fakes of every port: one virtual Postgres and one virtual channel layer in memory.

They behave as the real adapters do (a differential test compares them), on any event loop, and
without faults and delays unless a policy is injected. The simulation injects seeded ones, the
users' test kit none.
"""

from sharding_app.adapters.memory.faults import NetworkFaults, Plan, ServerFaults
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.leases import MemoryLeases
from sharding_app.adapters.memory.lifeline import MemoryLifelineSession
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.adapters.memory.transport import MemoryNetwork, MemoryTransport

__all__ = [
    "MemoryJournal",
    "MemoryLeases",
    "MemoryLifelineSession",
    "MemoryNetwork",
    "MemoryServer",
    "MemoryStore",
    "MemoryTransport",
    "NetworkFaults",
    "Plan",
    "ServerFaults",
]

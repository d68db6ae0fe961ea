"""A cluster on virtual time: real nodes and clients, a faulty network and store, a workload, and a judge.

    boot ──all up──> turmoil: faults and commands ──all calls ended──> quiet: everything works again
         ──every entity answers, every shard has a live home──> without a coordinator ──> stop in order ──> the history

`run_seed` is all that callers need. One seed gives one history: whatever is left to chance comes from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from sharding_app.adapters.memory.lifeline import MemoryLifelineSession
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.core.codec import decode_frame
from sharding_app.core.ids import Incarnation
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.node import Node
from sharding_app.runtime.process import Process as Asking
from sharding_app.simulation import workload
from sharding_app.simulation.clients import Client
from sharding_app.simulation.conditions import Conditions
from sharding_app.simulation.faults import Fault, schedule
from sharding_app.simulation.injector import Injector
from sharding_app.simulation.loop import SimLoop
from sharding_app.simulation.machines import watched
from sharding_app.simulation.network import CountingNetwork
from sharding_app.simulation.promises import PromiseBroken, check_history
from sharding_app.simulation.scheduler import Life, Process, Scheduler
from sharding_app.simulation.trace import Coverage, Trace, listening
from sharding_app.simulation.virtual_node import VirtualNode
from sharding_app.simulation.witness import Witness

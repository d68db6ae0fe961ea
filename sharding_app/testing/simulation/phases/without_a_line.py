"""A node that lacks a connection for good has to give its shards up (promise 13, some seeds)."""

from __future__ import annotations

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.reach import LOOK_SECONDS
from sharding_app.testing.simulation.fault_policy import LINES
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.liveness import rows_to_live
from sharding_app.testing.simulation.phases.healing import REPLACED_SECONDS
from sharding_app.testing.simulation.virtual_node import DRIFT, STEP_ASIDE_SECONDS

MARGIN_SECONDS = 2 * LOOK_SECONDS + 0.3
"""One look to notice the loss, one to notice that the time is over, and their durations."""


def without_a_line(stage: Stage) -> None:
    """Take a connection from a node: it gives its shards up in time.

    Its lifelines go on, so no other node takes it for dead.
    """
    world = stage.world
    if world.seed % 10 != 6 or world.failure is not None:
        return
    slot = world.nodes[world.scheduler.random.randrange(len(world.nodes))]
    node = slot.node
    if node is None:
        return
    line = sorted(LINES)[world.seed // 10 % len(LINES)]
    world.conditions.lines_down[slot.name] = line
    for each in _connections(node, line):
        each.close()
    world.trace.note("world", None, "%s is without its line %s", node.incarnation, line)
    limit = STEP_ASIDE_SECONDS / (1 - DRIFT) + MARGIN_SECONDS
    stage.until(
        lambda: node.state == "ended", limit, f"a node without its line {line} steps aside", promise=13
    )

    def replaced() -> bool:
        rows = rows_to_live(world)
        return all(row.home not in (None, node.incarnation) and row.step == "home" for row in rows)

    stage.until(replaced, REPLACED_SECONDS, "others take over from who steps aside", promise=13)
    world.conditions.heal()
    stage.settle("it heals after a lost line")


def _connections(node: Node, line: str) -> list[Connection]:
    journal, store = node.node_ports.journal, node.ports.store
    if line == "control" and isinstance(store, MemoryStore):
        return [store.connection]
    return list(journal.lines[line]) if isinstance(journal, MemoryJournal) else []

"""A node that lacks one of its connections for good is of no use to its shards, in some seeds (promise 13)."""

from __future__ import annotations

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.runtime.node import Node
from sharding_app.runtime.reaching import LOOK_SECONDS
from sharding_app.simulation.conditions import LINES
from sharding_app.simulation.phases.healing import REPLACED_SECONDS
from sharding_app.simulation.stage import Stage
from sharding_app.simulation.virtual_node import DRIFT, STEP_ASIDE_SECONDS

MARGIN_SECONDS = 2 * LOOK_SECONDS + 0.3
"""One look until it is seen that the connection is gone, one until it is seen that the time is over, and what they take."""


def without_a_line(stage: Stage) -> None:
    """Its lifelines go on, so no other node takes it for dead: it has to give its shards up itself, and in time."""
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
        rows = world.server.cluster.shards.values()
        return all(row.home not in (None, node.incarnation) and row.step == "home" for row in rows)

    stage.until(replaced, REPLACED_SECONDS, "others take over from who steps aside", promise=13)
    world.conditions.heal()
    stage.settle("it heals after a lost line")


def _connections(node: Node, line: str) -> list[Connection]:
    journal, store = node.node_ports.journal, node.ports.store
    if line == "control" and isinstance(store, MemoryStore):
        return [store.connection]
    return list(journal.lines[line]) if isinstance(journal, MemoryJournal) else []

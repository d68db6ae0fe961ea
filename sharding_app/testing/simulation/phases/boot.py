"""Every node and every client comes up."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage

BOOT_SECONDS = 20.0
LATE_SECONDS = 2.0


def boot(stage: Stage) -> None:
    world = stage.world
    start_nodes(stage)
    for client in world.clients:
        client.boot()
    stage.until(
        lambda: all(hasattr(each, "process") and each.is_up for each in world.nodes)
        and all(client.started for client in world.clients),
        BOOT_SECONDS, "every node comes up",
    )  # fmt: skip
    for entity in world.cast.silent:
        stage.users(world.clients[0], lambda entity=entity: world.clients[0].reach(entity))  # type: ignore[misc]


def start_nodes(stage: Stage) -> None:
    """Start all nodes. If a minimum is wanted, one comes late: calls have to wait for it."""
    scheduler = stage.world.scheduler
    for each in stage.world.nodes:
        late = LATE_SECONDS if stage.world.cast.whole_protocol and each.number == 0 else 0.0
        scheduler.later(late + scheduler.random.random() * 0.5, each.boot)

"""What a whole history shows when it is over: the promises over all calls, and that the store has forgotten nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.simulation.promises import PromiseBroken, check_history

if TYPE_CHECKING:
    from sharding_app.simulation.world import World


def look_back(world: World) -> None:
    witness = world.witness
    try:
        check_history(
            [call for call in witness.calls if call.ended is not None and id(call) not in witness.past],
            witness.journal,
        )
        for key, committed in world.server.journal.events.items():
            entity = f"{witness.name_of(key[0])}/{key[1]}"
            stored = [each.row.seq for each in committed.values()]
            if stored != [entry.seq for entry in witness.journal[entity]]:
                raise PromiseBroken(3, "acknowledged_is_stored", "the journal has forgotten events", entity)
    except PromiseBroken as error:
        world.broke(error)

"""Checks of a finished history: the promises over all calls, and a store that has lost nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.testing.simulation.in_memory import is_in_memory
from sharding_app.testing.simulation.promises import PromiseBroken, check_history
from sharding_app.testing.simulation.states import tokens_of

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World


def look_back(world: World) -> None:
    witness = world.witness
    try:
        witness.messages.look_back()
        check_history(
            [
                call
                for call in witness.calls
                if call.ended is not None and id(call) not in witness.past and not is_in_memory(call.entity)
            ],
            witness.journal,
        )
        unseen = {entity for entity, entries in witness.journal.items() if entries}
        stored_there = (
            (server, *each) for server in world.servers.values() for each in server.journal.events.items()
        )
        for server, key, committed in stored_there:
            if not world.lies_in(server, witness.name_of(key[0]), key[1]):
                continue
            entity = f"{witness.name_of(key[0])}/{key[1]}"
            unseen.discard(entity)
            entries = witness.journal[entity]
            if witness.states.keeps(entity):
                stored = tokens_of(committed[max(committed)].row) == [entry.token for entry in entries]
            else:
                stored = [each.row.seq for each in committed.values()] == [entry.seq for entry in entries]
            if not stored:
                raise PromiseBroken(3, "acknowledged_is_stored", "the journal has forgotten events", entity)
        for entity in sorted(unseen):
            raise PromiseBroken(3, "acknowledged_is_stored", "the journal has forgotten all events", entity)
    except PromiseBroken as error:
        world.broke(error)

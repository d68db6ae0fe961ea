"""What happens in the life of a world, one phase after the other.

    boot ──all up──> turmoil: faults and commands ──all calls ended──> quiet: everything works again
         ──every entity answers, every shard has a live home──> a deaf node, one behind a black hole, one that is let go unheard, without a connection,
         or one entity whose rows the server does not take
         ──whole protocol: a rolling restart under load without one failed call ──> all down and up again, no message──
         ──> no coordinator ──> stop in order

A phase is a function of the stage. It does its part, and returns when what it waits for is there, or when the run is over.
"""

from collections.abc import Callable

from sharding_app.simulation.phases.all_down import all_down_and_up
from sharding_app.simulation.phases.boot import boot
from sharding_app.simulation.phases.deployment import deployment
from sharding_app.simulation.phases.ending import no_coordinator, stop
from sharding_app.simulation.phases.healing import black_hole, deafness, quiet
from sharding_app.simulation.phases.in_the_way import in_the_way
from sharding_app.simulation.phases.turmoil import turmoil
from sharding_app.simulation.phases.unheard import unheard
from sharding_app.simulation.phases.without_a_line import without_a_line
from sharding_app.simulation.stage import Stage

Phase = Callable[[Stage], None]

PHASES: tuple[Phase, ...] = (
    boot, turmoil, quiet, deafness, black_hole, unheard, without_a_line, in_the_way, deployment, all_down_and_up, no_coordinator, stop,
)  # fmt: skip

"""The phases in the life of a world, one after the other.

    boot ──all up──> turmoil: faults and commands ──all calls ended──> quiet: everything works again
         ──every entity answers, every shard has a live home──>
         messages have arrived, followers and projections have all events,
         a deaf node, one behind a black hole, one that is let go unheard, one without a connection,
         one whose channel is full, one whose loop is blocked, one whose link is forgotten,
         an entity whose rows the server does not take, servers that are slow and well, a further
         journal that is down,
         a shard that is closed, one that moves to another journal, one whose move is lost,
         pipelined commands behind a refused row,
         calls in a circle, a handler that stalls, timers, an entity that does not start,
         a server that goes back in time under entities in memory, and a further journal that does,
         ──whole protocol: a rolling restart under load without one failed call──>
         all down and up again, no message; what operators do with durable messages;
         projections have all events again
         ──> no coordinator ──> stop in order

A phase is a function of the stage. It does its part, and returns when its conditions have come
true, or when the run is over.
"""

from collections.abc import Callable

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.phases.alarms import alarms
from sharding_app.testing.simulation.phases.all_down import all_down_and_up
from sharding_app.testing.simulation.phases.blocked import blocked
from sharding_app.testing.simulation.phases.boot import boot
from sharding_app.testing.simulation.phases.chains import chains
from sharding_app.testing.simulation.phases.closing import closing
from sharding_app.testing.simulation.phases.deployment import deployment
from sharding_app.testing.simulation.phases.ending import no_coordinator, stop
from sharding_app.testing.simulation.phases.following import following
from sharding_app.testing.simulation.phases.forgotten import forgotten
from sharding_app.testing.simulation.phases.full_channel import full_channel
from sharding_app.testing.simulation.phases.going_back import going_back, losing_takes
from sharding_app.testing.simulation.phases.healing import black_hole, deafness, quiet
from sharding_app.testing.simulation.phases.in_the_way import in_the_way
from sharding_app.testing.simulation.phases.journal_down import journal_down
from sharding_app.testing.simulation.phases.lost_switch import lost_switch
from sharding_app.testing.simulation.phases.messages import messages
from sharding_app.testing.simulation.phases.moving import moving
from sharding_app.testing.simulation.phases.operators import operators
from sharding_app.testing.simulation.phases.pipelines import pipelines
from sharding_app.testing.simulation.phases.projecting import projecting, still_projecting
from sharding_app.testing.simulation.phases.slow_server import slow_server
from sharding_app.testing.simulation.phases.stalled import stalled
from sharding_app.testing.simulation.phases.stubbornness import stubbornness
from sharding_app.testing.simulation.phases.turmoil import turmoil
from sharding_app.testing.simulation.phases.unheard import unheard
from sharding_app.testing.simulation.phases.without_a_line import without_a_line

Phase = Callable[[Stage], None]

PHASES: tuple[Phase, ...] = (
    boot, turmoil, quiet, messages, following, projecting, deafness, black_hole, unheard, without_a_line, full_channel, blocked, forgotten, in_the_way, slow_server, journal_down, closing, moving, lost_switch, pipelines,
    chains, stalled, alarms, stubbornness, going_back, losing_takes, deployment, all_down_and_up, operators, still_projecting, no_coordinator, stop,
)  # fmt: skip

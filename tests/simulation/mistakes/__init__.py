"""Planted mistakes, by subject. Each takes one guard out of the real machines and shells, or out of
the tables in memory that stand for PostgreSQL (`Mistake.changes_a_stand_in`).
"""

from tests.simulation.mistakes.closings import CLOSINGS
from tests.simulation.mistakes.delivery import DELIVERY
from tests.simulation.mistakes.durable_messages import DURABLE_MESSAGES
from tests.simulation.mistakes.following import FOLLOWING
from tests.simulation.mistakes.journals import JOURNALS
from tests.simulation.mistakes.leases import LEASES
from tests.simulation.mistakes.many import MANY
from tests.simulation.mistakes.mistake import Mistake
from tests.simulation.mistakes.moves import MOVES
from tests.simulation.mistakes.nodes import NODES
from tests.simulation.mistakes.overlapping import OVERLAPPING
from tests.simulation.mistakes.placement import PLACEMENT
from tests.simulation.mistakes.projections import PROJECTIONS
from tests.simulation.mistakes.refusing import REFUSING
from tests.simulation.mistakes.remembering import REMEMBERING
from tests.simulation.mistakes.resizing import RESIZING
from tests.simulation.mistakes.server import SERVER
from tests.simulation.mistakes.storing import STORING
from tests.simulation.mistakes.timing import TIMING
from tests.simulation.mistakes.workers import WORKERS

MISTAKES: dict[str, Mistake] = {
    **DELIVERY,
    **STORING,
    **SERVER,
    **REFUSING,
    **NODES,
    **PLACEMENT,
    **REMEMBERING,
    **LEASES,
    **OVERLAPPING,
    **TIMING,
    **DURABLE_MESSAGES,
    **FOLLOWING,
    **MANY,
    **WORKERS,
    **PROJECTIONS,
    **RESIZING,
    **JOURNALS,
    **CLOSINGS,
    **MOVES,
}

"""Mistakes on purpose, by what they are about. Each takes one guard out of the real machines, shells or tables."""

from sharding_app.simulation.mistakes.delivery import DELIVERY
from sharding_app.simulation.mistakes.leases import LEASES
from sharding_app.simulation.mistakes.mistake import Mistake
from sharding_app.simulation.mistakes.nodes import NODES
from sharding_app.simulation.mistakes.placement import PLACEMENT
from sharding_app.simulation.mistakes.refusing import REFUSING
from sharding_app.simulation.mistakes.remembering import REMEMBERING
from sharding_app.simulation.mistakes.server import SERVER
from sharding_app.simulation.mistakes.storing import STORING

MISTAKES: dict[str, Mistake] = {
    **DELIVERY,
    **STORING,
    **SERVER,
    **REFUSING,
    **NODES,
    **PLACEMENT,
    **REMEMBERING,
    **LEASES,
}

"""How nodes are shown: by name, letter and colour, the same on every page."""

from collections import Counter
from typing import Any

from sharding_app.dashboard import words
from sharding_app.operations.cache import Look
from sharding_app.protocol.ids import Incarnation

COLOURS = 12

View = dict[str, Any]


def homes(look: Look) -> dict[Incarnation, View]:
    """How each node is shown: name, letter, colour."""
    twice = {
        name for name, number in Counter(each.name for each in look.cluster.members).items() if number > 1
    }
    return {
        each.incarnation: {
            "incarnation": each.incarnation,
            "name": f"{each.name} ({each.incarnation[:8]})" if each.name in twice else each.name,
            "letter": words.letter(look.places.get(each.incarnation, 0)),
            "colour": look.places.get(each.incarnation, 0) % COLOURS,
        }
        for each in look.cluster.members
    }

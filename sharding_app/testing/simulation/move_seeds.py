"""Which worlds move rows of shards between their journals (`moves`)."""

SEEDS = (23, 28, 29, 30, 37, 42)
"""Of 48 seeds those with moves of rows: of both kinds, with two journals and with three, one with
projections and one with archives."""


def has_moves(seed: int) -> bool:
    return seed % 48 in SEEDS


def loses_a_switch(seed: int) -> bool:
    """Whether DATABASE has an asynchronous standby in calm, which takes over without a switch."""
    return seed % 96 == SEEDS[1]

"""The pause between two attempts: it doubles with each failure, up to a longest one."""

_MOST_DOUBLINGS = 40
"""A float ends at a thousand of them, which an outage of half an hour may bring."""


def doubled(first: float, doublings: int, most: float) -> float:
    """Return a pause of `first` seconds, doubled N times, and of `most` seconds at most."""
    return min(first * 2.0 ** min(doublings, _MOST_DOUBLINGS), most)

"""Terms and epochs on a server that went back in time (promise 18).

A restore to an older point takes back elections and moves. Their numbers would be given out again
with another meaning, and processes that know higher ones would ignore the new ones forever. So the
first election in another lineage (`records.Lineage`) begins a new *era*: its term is made of the
server's time of day and of its timeline, and is higher than all terms before it, whatever the
restored row says. Later terms count on from there. The clock orders eras only, and only after such
an event; the timeline parts two failovers within one second. An era whose clock is behind the last
one that the row tells of comes right after that. Writes stay fenced by epochs that are equal, as
ever.

    term    seconds since 1970 | timeline modulo 16 | elections of the era
                                       4 bits               16 bits

An epoch that is given in an era is at least the era's first term, and a coordinator of a former
lineage writes nothing in the present one, so none is ever given twice. But a restored row may keep
its shard's home and its low epoch. So homes are announced with a term: epochs are compared within
one era, and the later era wins.

Further journals may follow numbers of shards from steps of a resize that the cluster's server has
lost. So the election that begins an era also gives the numbers of each type a revision that is not
below its term. A journal then goes back to the numbers that the cluster has, with the first shard
that is taken there in the era.

They may also have shards of which the cluster's server has lost the rows. So the coordinator of the
era asks all of them, and makes these rows again, before a shard without a row gets a home
(`Placement.unread`).

A home whose row is lost may be valid in the former lineage for a while. Nodes that knew that
lineage wait for the end of its leases before theirs come back (`protocol.liveness.node_lease`). A
node that joins knows nothing of it, so it waits when it is elected, unless the rows show that
another coordinator of the era has decided already.
"""

from collections.abc import Iterable

from sharding_app.protocol.ids import Epoch, Term
from sharding_app.protocol.records import ShardRow

ERA_BITS = 16
"""Bits of a term that count the elections of one era. The first era is 0: its terms are 1, 2, 3 ...
Later terms still fit into a double."""
TIMELINE_BITS = 4
TIMELINES = 1 << TIMELINE_BITS


def next_term(former: Term, *, same_lineage: bool, now_seconds: int, timeline: int = 0) -> Term:
    """Return the term of an election; the server's `raise_term` does the same in SQL."""
    if same_lineage:
        return former + 1
    era = now_seconds << TIMELINE_BITS | timeline % TIMELINES
    return (max(era_of(former) + 1, era) << ERA_BITS) + 1


def era_of(term: Term) -> int:
    return term >> ERA_BITS


def lowest_epoch(term: Term) -> Epoch:
    """Return the lowest epoch that a coordinator of that term gives to a shard's next home."""
    return max(era_of(term) << ERA_BITS, 1)


def era_began(term: Term) -> int | None:
    """Return when the lineage last changed, in seconds of the server's time of day; None: never."""
    return era_of(term) >> TIMELINE_BITS or None


def begins_era(term: Term) -> bool:
    """Tell whether the election was the first one in another lineage."""
    return era_of(term) > 0 and term & ((1 << ERA_BITS) - 1) == 1


def decided_in_era(term: Term, rows: Iterable[ShardRow]) -> bool:
    """Tell whether the rows show that no lease of a former lineage counts any more.

    In the first era there is no former one.
    """
    return era_of(term) == 0 or any(row.epoch >= lowest_epoch(term) for row in rows)

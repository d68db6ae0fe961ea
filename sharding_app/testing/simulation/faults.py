"""The faults of a seed: a list of kinds, times and lengths that is made before the world begins.

So it can be shown, replayed, and cut down to the faults that are needed to break a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple
from zlib import crc32


class Kind(NamedTuple):
    """One kind of fault, with the range of its length in seconds. `aimed`: it hits one node."""

    name: str
    shortest: float
    longest: float
    aimed: bool = False


KINDS = (
    Kind("loss", 0.5, 4.0),
    Kind("duplication", 0.5, 4.0),
    Kind("reordering", 0.5, 4.0),
    Kind("delay", 0.5, 3.0),
    Kind("partition", 0.5, 4.0, aimed=True),
    Kind("one_way", 0.5, 3.0, aimed=True),
    Kind("deaf", 1.0, 8.0, aimed=True),
    Kind("full_channel", 0.3, 6.0, aimed=True),
    Kind("layer_down", 0.2, 2.5),
    Kind("layer_out", 8.5, 11.0),
    Kind("garbage", 0.1, 1.0, aimed=True),
    Kind("crash", 0.5, 5.0, aimed=True),
    Kind("crash_coordinator", 0.5, 5.0),
    Kind("crash_two", 0.5, 4.0, aimed=True),
    Kind("short_pause", 0.05, 1.5, aimed=True),
    Kind("long_pause", 3.2, 7.0, aimed=True),
    Kind("lapse", 2.05, 2.95, aimed=True),
    Kind("blocked_loop", 0.3, 10.0, aimed=True),
    Kind("pause_coordinator", 0.3, 6.0),
    Kind("pause_in_append", 0.5, 8.0, aimed=True),
    Kind("deposed_in_decide", 0.5, 3.0),
    Kind("pause_client", 0.3, 3.0),
    Kind("crash_client", 0.1, 3.0),
    Kind("restart_client", 0.1, 1.0),
    Kind("slow_store", 0.3, 3.0),
    Kind("slow_appends", 1.0, 3.0),
    Kind("failing_store", 0.3, 2.0),
    Kind("lost_answers", 0.3, 2.0),
    Kind("late_commits", 0.5, 2.5),
    Kind("postgres_restart", 0.05, 3.5),
    Kind("fail_over", 0.05, 2.0),
    Kind("standby_away", 1.0, 4.0),
    Kind("tail_lost", 0.05, 1.5, aimed=True),
    Kind("lifeline_session_lost", 0.0, 0.0, aimed=True),
    Kind("lifelines_lost", 0.0, 0.0, aimed=True),
    Kind("lifelines_unheard", 0.5, 3.0, aimed=True),
    Kind("slow_pings", 1.0, 5.0, aimed=True),
    Kind("line_lost", 1.0, 6.0, aimed=True),
    Kind("late_deletions", 1.0, 4.0),
    Kind("right_taken", 1.0, 3.0),
    Kind("cut_off", 0.5, 6.0, aimed=True),
    Kind("leave_and_rejoin", 0.5, 3.0, aimed=True),
    Kind("leave_slowly", 2.0, 6.0, aimed=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}

ANSWER_KINDS = (
    Kind("server_errors", 2.0, 5.0),
    Kind("closed_entities", 0.5, 3.0),
    Kind("refused_rows", 0.5, 4.0),
    Kind("locked_shards", 0.5, 3.0),
)
"""The server answers with errors. Every third seed has one of them besides, in turn."""
BY_NAME.update({kind.name: kind for kind in ANSWER_KINDS})
ANSWERS_EVERY = 3

MOVES = Kind("moves", 11.0, 11.0)
"""No fault, but always there: shards are moved around under load."""
BY_NAME[MOVES.name] = MOVES

PROTOCOL_KINDS = (
    Kind("rolling_restart", 0.2, 1.5),
    Kind("crash_all", 0.3, 2.0),
    Kind("late_marks", 1.0, 4.0),
    Kind("leases_down", 1.0, 6.0),
    Kind("lease_taken", 0.5, 3.0),
)
"""Only in seeds of the whole protocol. In a rolling restart the length is the pause after each
node.
"""
BY_NAME.update({kind.name: kind for kind in PROTOCOL_KINDS})

JOURNAL_KINDS = (
    Kind("postgres_restart", 0.05, 5.0),
    Kind("fail_over", 0.05, 2.0),
    Kind("standby_away", 1.0, 4.0),
    Kind("tail_lost", 0.05, 1.5),
    Kind("connections_broken", 0.5, 3.0),
    Kind("slow_store", 0.5, 4.0),
    Kind("slow_appends", 1.0, 3.0),
    Kind("failing_store", 0.3, 3.0),
    Kind("lost_answers", 0.3, 2.0),
    Kind("late_commits", 0.5, 2.5),
    Kind("late_deletions", 1.0, 4.0),
    Kind("server_errors", 2.0, 5.0),
    Kind("locked_shards", 0.5, 3.0),
    Kind("line_lost", 1.0, 4.0, aimed=True),
    Kind("cut_off", 0.5, 6.0, aimed=True),
    Kind("right_taken", 1.0, 3.0),
    Kind("pause_in_append", 3.2, 8.0, aimed=True),
)
"""Of a further journal's server, besides the other faults of a seed with such journals."""
BY_NAME.update({kind.name: kind for kind in JOURNAL_KINDS if kind.name not in BY_NAME})
LEAST_OF_JOURNALS, MOST_OF_JOURNALS = 3, 5

BLACK_HOLE = "black_hole"
"""Not drawn by chance: it comes in calm, in every fifth seed, so that its time can be measured."""

STRANGERS = "strangers"
"""Not a fault of a moment: in every third seed no process sees or ends another's sessions.

Counts the sessions that are left.
"""

FORGOTTEN = "forgotten_streams"
"""Without a time: in every second pair of seeds, from the beginning to the end."""

LEAST, MOST = 6, 11
"""Faults in one seed, each of another kind."""
STORM_KINDS, STORM_FAULTS, STORM_PAUSE_SECONDS = 4, 8, 0.5
"""A storm has this many faults more, of a few kinds that come again and again. The next one of a
kind comes after a pause.
"""
DRAWN_AT_MOST = 8
FIRST_SECONDS, LAST_SECONDS = 0.3, 8.0


class Fault(NamedTuple):
    at: float
    kind: str
    lasts: float
    target: int
    "Number of the node that it hits, if it hits one."
    journal: str = ""
    "The further journal whose server it hits; empty: the cluster's own, or no server."

    def __str__(self) -> str:
        aim = f" n{self.target}" if BY_NAME[self.kind].aimed and not self._is_plain else ""
        of = f" of {self.journal}" if self.journal else ""
        return f"{self.kind}{aim}{of} at {self.at:.2f} s for {self.lasts:.2f} s"

    @property
    def _is_plain(self) -> bool:
        """Whether it hits a further journal, and no node."""
        return self.journal != "" and not any(each.name == self.kind and each.aimed for each in JOURNAL_KINDS)


def schedule(
    seed: int,
    nodes: int,
    *,
    moves: bool = True,
    whole_protocol: bool = False,
    journals: Sequence[str] = (),
) -> list[Fault]:
    """Choose the faults of a seed, ordered by their beginning. `journals`: the further ones."""
    random = Random(f"faults {seed}")
    chosen = random.sample(KINDS, random.randint(LEAST, MOST))
    # The first one follows from the seed's number, so that every kind comes up in any row of seeds.
    first = KINDS[seed % len(KINDS)]
    if first not in chosen:
        chosen[0] = first
    if whole_protocol:
        # At least one of them, in turn; in some seeds another one.
        number = seed // 2 % len(PROTOCOL_KINDS)
        chosen.append(PROTOCOL_KINDS[number])
        if random.random() < 0.3:
            chosen.append(PROTOCOL_KINDS[number - 1])
    always = [Fault(0.5, MOVES.name, MOVES.longest, 0)] if moves else []
    if seed % ANSWERS_EVERY == ANSWERS_EVERY - 1:
        chosen.append(ANSWER_KINDS[seed // ANSWERS_EVERY % len(ANSWER_KINDS)])
    faults = (_drawn(random, kind, nodes) for kind in chosen)
    return sorted((*always, *faults, *_of_journals(seed, nodes, journals)))


def storm(
    seed: int,
    nodes: int,
    *,
    moves: bool = True,
    whole_protocol: bool = False,
    journals: Sequence[str] = (),
) -> list[Fault]:
    """Choose the faults of a storm: those of the seed, and a few kinds that come again and again.

    So a server fails over twice, or a node that has just come back is cut off.
    """
    faults = schedule(seed, nodes, moves=moves, whole_protocol=whole_protocol, journals=journals)
    random = Random(f"storm {seed}")
    few = random.sample(KINDS + PROTOCOL_KINDS if whole_protocol else KINDS, STORM_KINDS)
    for _ in range(STORM_FAULTS):
        _add(faults, lambda: _drawn(random, random.choice(few), nodes))
    if journals:
        few = random.sample(JOURNAL_KINDS, STORM_KINDS)
        for _ in range(STORM_FAULTS // 2):
            _add(
                faults,
                lambda: _drawn(random, random.choice(few), nodes)._replace(journal=random.choice(journals)),
            )
    return sorted(faults)


def _add(faults: list[Fault], drawn: Callable[[], Fault]) -> None:
    """Add a fault at a time at which none of its kind is at work there, if one is found soon."""
    for _ in range(DRAWN_AT_MOST):
        new = drawn()
        same = (each for each in faults if (each.kind, each.journal) == (new.kind, new.journal))
        if all(_ends(each) < new.at or _ends(new) < each.at for each in same):
            faults.append(new)
            return


def _ends(fault: Fault) -> float:
    return fault.at + fault.lasts + STORM_PAUSE_SECONDS


def _drawn(random: Random, kind: Kind, nodes: int) -> Fault:
    return Fault(
        at=round(random.uniform(FIRST_SECONDS, LAST_SECONDS), 3),
        kind=kind.name,
        lasts=round(random.uniform(kind.shortest, kind.longest), 3),
        target=random.randrange(nodes),
    )


def _of_journals(seed: int, nodes: int, journals: Sequence[str]) -> list[Fault]:
    if not journals:
        return []
    random = Random(f"faults of journals {seed}")
    chosen = random.sample(JOURNAL_KINDS, random.randint(LEAST_OF_JOURNALS, MOST_OF_JOURNALS))
    first = JOURNAL_KINDS[crc32(b"%d" % seed) % len(JOURNAL_KINDS)]
    if first not in chosen:
        chosen[0] = first
    return [_drawn(random, kind, nodes)._replace(journal=random.choice(journals)) for kind in chosen]

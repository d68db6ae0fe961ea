"""The course of a move: how shards of a type get from one journal into another while nodes work.

      Begin, Watch -- Copy: rows, and Apply: again what was written since --> Compare
                                                                                │
      ┌─────────── for some shards at a time ───────────────────────────────────┘
      v
    Close ──no home, Fence and Stand, Apply: the rest──> PutRest, Stash ──> Switch ──> Leave
      └─────────────── a failure: Unstash, Open ───────────┘

A shell carries out what the generators yield, and answers with the time. A request is one
transaction of one database, unless its description says otherwise. The shell throws an error in
where a request has failed.

Contract: the coordinator's rows alone say where a shard lies, and only `Switch` changes them.
Before it, nothing can take effect in the source any more: its shards have no home, their epochs are
higher there than any home's, and their messages are out of the table. All that the source has is in
the target by then. Projections have passed the changes of these shards in the source.

The generators may end at any request: the same call goes on, and a shard that was closed is opened
by the coordinator once its time has passed.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sharding_app.protocol.ids import Epoch, ShardId

ROUNDS = 30
PASSES = 6
"""Tries to let shards change over. A vacuum of a large table ends meanwhile."""
MOMENT_SECONDS = 0.2
CLOSED_SECONDS = 10.0
"""A move that stops keeps shards closed for no longer."""


class CannotMove(Exception):
    """No shard is moved, or no further one; the text says why, and what to do."""


class InUse(CannotMove):
    """A table was in use for longer than a request waits."""


class Limits(NamedTuple):
    """How long a move waits, in seconds."""

    homes: float = 60.0
    "For homes: handlers may take as long as they need to end. Then the shards are opened again."
    projections: float = 10.0
    closed: float = CLOSED_SECONDS
    look: float = 0.05
    "Between two looks."
    rest: float = 15.0
    "For the copy of the rest, behind the last homes."
    in_use: float = 10.0
    "Until shards try again to change over, open meanwhile, where a table was in use."


class Wanted(NamedTuple):
    """What is to be moved."""

    type: str
    source: str
    target: str
    shards: Sequence[ShardId]


# -- Requests -------------------------------------------------------------------------------------


class Begin(NamedTuple):
    """In DATABASE: note that all the shards are being copied. Raises CannotMove if their type is
    being resized.
    """


class Open(NamedTuple):
    """In DATABASE: open closed shards."""

    shards: Sequence[ShardId]
    at_last: bool = False
    "The move has failed: an error of this request does not count beside that of the move."


class Unstash(NamedTuple):
    """In the source: put back messages that `Stash` has taken out."""

    shards: Sequence[ShardId]
    at_last: bool = False


class Elsewhere(NamedTuple):
    """In DATABASE and in the source: answer which of the shards do not lie in the source, as one of
    the two says.
    """

    shards: Sequence[ShardId]


class Prepare(NamedTuple):
    """In the target: make rows of the shards, at the epochs of DATABASE. Answers False if it has a
    later epoch of one. Raises CannotMove if one has a home there: DATABASE has lost its switch.
    """

    shards: Sequence[ShardId]


class Watch(NamedTuple):
    """In the source: note from now on which rows are written or deleted. Answers True if a former
    call has begun with that, for the same shards and target, and has cleared the target, and both
    servers go on in the same lineages.
    """


class ClearCopy(NamedTuple):
    """In the target: delete events and snapshots of the shards, in pieces."""


class Copy(NamedTuple):
    """Copy the next piece of a table, from where a former call has come to, into the target.
    Answers how many ranges were copied by this call, or None at the end of the table.
    """

    table: str


class Apply(NamedTuple):
    """Copy again a piece of what was noted: notes and rows as one snapshot of the source shows
    them. The notes go once the target has the copy. Answers `Applied`.
    """


class Applied(NamedTuple):
    notes: int
    is_full: bool
    "There may be more notes."


class Compare(NamedTuple):
    """Compare all rows, as one snapshot of the source shows them. Raises CannotMove if they
    differ.
    """


class Unpassed(NamedTuple):
    """In DATABASE, and in the source: answer why projections cannot follow the shards yet, or
    nothing.
    """

    shards: Sequence[ShardId]
    closed: bool
    "They must have passed all changes."


class Close(NamedTuple):
    """In DATABASE: give the shards no home from now on."""

    shards: Sequence[ShardId]
    seconds: float


class Renew(NamedTuple):
    """In DATABASE: keep the shards closed. Answers those that still are."""

    shards: Sequence[ShardId]
    seconds: float


class Homes(NamedTuple):
    """In DATABASE: answer which of the shards have a home."""

    shards: Sequence[ShardId]


class Fence(NamedTuple):
    """In DATABASE: give closed shards without a home an epoch that none of their homes has had.
    Answers these epochs.
    """

    shards: Sequence[ShardId]


class Stand(NamedTuple):
    """In the source or in the target, if that is a further journal: let nothing be written at an
    earlier epoch than these, and put messages back that `Stash` has taken out. Answers False if it
    has a later epoch of one.
    """

    raised: Mapping[ShardId, Epoch]
    in_target: bool


class PutRest(NamedTuple):
    """In the target: put messages, remembered ids and marks in the place of those that it has of
    the shards, as they are in the source.
    """

    shards: Sequence[ShardId]
    stashed: bool
    "Those messages that `Stash` has taken out."


class Stash(NamedTuple):
    """In the source: take messages of shards out of the table. Answers how many of the shards are
    still without a home, and at these epochs.
    """

    raised: Mapping[ShardId, Epoch]


class Switch(NamedTuple):
    """In DATABASE: say that the shards lie in the target from now on. Answers how many of them are
    closed and at these epochs; unless that is all, nothing is changed. Raises CannotMove where
    projections have not passed them.

    If DATABASE itself is the source, the same transaction puts the rest into the target, and takes
    it out here.
    """

    raised: Mapping[ShardId, Epoch]


class Leave(NamedTuple):
    """In the source, if that is a further journal: say which shards have left it, and keep only
    their events and snapshots.
    """


class ClearRest(NamedTuple):
    """In the target: delete messages, remembered ids and marks of the shards."""

    shards: Sequence[ShardId]


class Unwatch(NamedTuple):
    """In the source: note nothing more."""


class Forget(NamedTuple):
    """In DATABASE: the shards are not on their way any more."""

    shards: Sequence[ShardId]


class Wait(NamedTuple):
    seconds: float


Request = (
    Begin | Open | Unstash | Elsewhere | Prepare | Watch | ClearCopy | Copy | Apply | Compare | Unpassed | Close | Renew
    | Homes | Fence | Stand | PutRest | Stash | Switch | Leave | ClearRest | Unwatch | Forget | Wait
)  # fmt: skip


class Step(NamedTuple):
    """What a move has just done: news for people, not a request."""

    name: str
    done: int = 0
    shards: Sequence[ShardId] = ()
    seconds: float = 0.0
    "Of a switch: how long its shards had no home, as the command saw it."


class Answer(NamedTuple):
    """What a shell sends back, to a step too."""

    now: float
    value: Any = None


Course = Generator[Request | Step, Answer, None]
Asking = Generator[Request | Step, Answer, Any]


class Move:
    """One call. `names`: journals for people."""

    def __init__(self, wanted: Wanted, limits: Limits, names: Callable[[str], str] = repr) -> None:
        self._wanted = wanted
        self._shards = sorted(wanted.shards)
        self._limits = limits
        self._names = names
        self._now = 0.0
        self._not_before = 0.0
        "When closed shards are to be kept closed next."

    def run(self, at_once: int) -> Course:
        yield from self._begin()
        yield from self._tell(Step("begun", len(self._shards)))
        for table in ("event", "snapshot"):
            while (number := (yield from self._ask(Copy(table)))) is not None:
                yield from self._tell(Step("copied", number))
                yield from self._ask(Apply())
        yield from self._catch_up()
        yield from self._ask(Compare())
        yield from self._tell(Step("compared"))
        for first in range(0, len(self._shards), at_once):
            shards = self._shards[first : first + at_once]
            began = yield from self._pass_at_last(shards)
            yield from self._tell(Step("switched", len(shards), shards, self._now - began))
            yield from self._ask(Leave())
        yield from self._ask(Unwatch())
        yield from self._tell(Step("done", len(self._shards)))

    def take_back(self, *, target_is_gone: bool = False) -> Course:
        """Drop the copy of shards that have not been switched, and open them. Asks for nothing in a
        target that is gone for good.
        """
        yield from self._refuse_lost()
        yield from self._ask(Open(self._shards))
        if self._wanted.source:
            yield from self._ask(Unstash(self._shards))
        yield from self._ask(Unwatch())
        if not target_is_gone:
            yield from self._prepare()
            yield from self._ask(ClearCopy())
            yield from self._ask(ClearRest(self._shards))
        yield from self._ask(Forget(self._shards))

    # -- The copy ------------------------------------------------------------------------------

    def _begin(self) -> Course:
        yield from self._refuse_lost()
        yield from self._ask(Begin())
        # What a former call has left closed is copied as any other.
        yield from self._ask(Open(self._shards))
        if self._wanted.source:
            yield from self._ask(Unstash(self._shards))
        yield from self._prepare()
        if not (yield from self._ask(Watch())):
            yield from self._ask(ClearCopy())

    def _refuse_lost(self) -> Course:
        """End where DATABASE has lost a switch: messages and remembered ids of the shards are in
        the target alone, and its rows are no copy.
        """
        if shards := (yield from self._ask(Elsewhere(self._shards))):
            source, target = self._names(self._wanted.source), self._names(self._wanted.target)
            raise CannotMove(
                f"Shards {listed(shards)} are on their way from {source} to {target}, and lie there no more: DATABASE has lost the"
                " switch, with a failover or a restore. Restore it, or put the rows right by hand: the page on several journals says"
                " how. Nothing was copied or deleted."
            )

    def _prepare(self) -> Course:
        if self._wanted.target and not (yield from self._ask(Prepare(self._shards))):
            raise CannotMove(
                f"{self._names(self._wanted.target)} has later epochs of some of these shards than the cluster's own database:"
                " one of the two was put back to a former state."
            )

    def _catch_up(self) -> Course:
        """Copy again what was noted, until the rest is a matter of a moment. Where nodes write as
        fast as this copies, no more is won after some rounds.
        """
        for _ in range(ROUNDS):
            began = self._now
            applied: Applied = yield from self._ask(Apply())
            if applied.notes:
                yield from self._tell(Step("caught up", applied.notes))
            if not applied.is_full and self._now - began < MOMENT_SECONDS:
                return

    # -- The switch ----------------------------------------------------------------------------

    def _pass_at_last(self, shards: Sequence[ShardId]) -> Asking:
        """Return when the try began that was the last one."""
        tried = 0
        while True:
            yield from self._catch_up()
            began, tried = self._now, tried + 1
            try:
                yield from self._pass(shards)
            except InUse:
                if tried == PASSES:
                    raise
                yield from self._ask(Wait(self._limits.in_use))
            else:
                return began

    def _pass(self, shards: Sequence[ShardId]) -> Course:
        """Close shards, copy the rest, and let them lie in the target. Opens them if that fails."""
        # Before anything is closed, projections have to be close behind.
        yield from self._await_projections(shards, closed=False)
        yield from self._ask(Close(shards, self._limits.closed))
        self._kept_closed()
        try:
            yield from self._await_homes(shards)
            raised = yield from self._fence(shards)
            # The fence has waited for the last writers: a snapshot behind it has all their notes.
            until = self._now + self._limits.rest
            while (yield from self._ask(Apply())).is_full:
                if self._now > until:
                    raise CannotMove(
                        f"Nodes write more rows of {self._wanted.type} than this command copies. Shards {listed(shards)} are open again,"
                        " and lie where they were. Run the command again at a quieter time."
                    )
                yield from self._keep_closed(shards)
            yield from self._await_projections(shards, closed=True)
            yield from self._switch(shards, raised)
        except GeneratorExit:
            raise
        except BaseException:
            if self._wanted.source:
                yield from self._ask(Unstash(shards, at_last=True))  # the next home does it too
            yield from self._ask(Open(shards, at_last=True))
            raise

    def _await_homes(self, shards: Sequence[ShardId]) -> Course:
        until = self._now + self._limits.homes
        while homes := (yield from self._ask(Homes(shards))):
            if self._now > until:
                raise CannotMove(
                    f"Shards {listed(homes)} still have a home after {self._limits.homes:g} s ({', '.join(sorted(set(homes.values())))})."
                    " Is there a coordinator, and what do the shards wait for (manage.py sharding_status)? They are open again,"
                    " and lie where they were."
                )
            yield from self._keep_closed(shards)
            yield from self._ask(Wait(self._limits.look))

    def _fence(self, shards: Sequence[ShardId]) -> Asking:
        """Let no former home write, in the cluster's own database and in the source."""
        source, target = self._wanted.source, self._wanted.target
        raised: Mapping[ShardId, Epoch] = yield from self._ask(Fence(shards))
        if len(raised) < len(shards):
            raise CannotMove(opened(set(shards) - set(raised)))
        if source and not (yield from self._ask(Stand(raised, in_target=False))):
            raise CannotMove(f"{self._names(source)} has later epochs than the cluster's own database.")
        # None of the target's rows is older than the last home in the source.
        if target and not (yield from self._ask(Stand(raised, in_target=True))):
            raise CannotMove(f"{self._names(target)} has later epochs of these shards.")
        return raised

    def _switch(self, shards: Sequence[ShardId], raised: Mapping[ShardId, Epoch]) -> Course:
        # First of all a copy: a message is in one of the two databases at any time, so that no mark
        # of it is removed.
        yield from self._ask(PutRest(shards, stashed=False))
        yield from self._keep_closed(shards)
        if self._wanted.source:
            if (yield from self._ask(Stash(raised))) < len(shards):
                raise CannotMove(opened(shards))
            yield from self._ask(PutRest(shards, stashed=True))
        if (yield from self._ask(Switch(raised))) < len(shards):
            raise CannotMove(opened(shards))

    def _await_projections(self, shards: Sequence[ShardId], *, closed: bool) -> Course:
        until = self._now + self._limits.projections
        while why := (yield from self._ask(Unpassed(shards, closed))):
            if self._now > until:
                raise CannotMove(why)
            if closed:
                yield from self._keep_closed(shards)
            yield from self._ask(Wait(self._limits.look))

    def _keep_closed(self, shards: Sequence[ShardId]) -> Course:
        if self._now < self._not_before:
            return
        kept = yield from self._ask(Renew(shards, self._limits.closed))
        if len(kept) < len(shards):
            raise CannotMove(opened(shards))
        self._kept_closed()

    def _kept_closed(self) -> None:
        self._not_before = self._now + self._limits.closed / 4

    # -- The shell -----------------------------------------------------------------------------

    def _ask(self, request: Request) -> Asking:
        answer = yield request
        self._now = answer.now
        return answer.value

    def _tell(self, step: Step) -> Course:
        self._now = (yield step).now


def listed(shards: Iterable[ShardId]) -> str:
    ordered = sorted(shards)
    named = ", ".join(map(str, ordered[:20]))
    return named + (f" and {len(ordered) - 20} more" if len(ordered) > 20 else "")


def opened(shards: Iterable[ShardId]) -> str:
    """Return the reason of a move that ends since shards are not closed any more."""
    return (
        f"Shards {listed(shards)} were opened again meanwhile, since this command was held up, or another one has changed them."
        " They lie where they were. Run the command again."
    )

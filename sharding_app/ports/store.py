"""The rows that arbitrate: members, homes and the term (promises 1, 7 and 11)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import (
    ClosedShard,
    CoordinatorRow,
    Decision,
    HomeChange,
    LeaveRequest,
    Member,
    MemberState,
    News,
    NumberOfWorkers,
    Server,
    ShardRow,
    StoredShard,
    TypeConfig,
)


class StoreUnavailable(Exception):
    """The store cannot be reached, or did not answer in time. Whether a write took effect is not
    known.

    `answered`: the server was reached, and has said itself that it does not do this now (for
    example because a table is locked).
    """

    def __init__(self, reason: str = "", *, answered: bool = False) -> None:
        super().__init__(reason)
        self.answered = answered


class StoreRefused(StoreUnavailable):
    """The store answered that it cannot take this call, now or later: a value of it is at fault.

    Nothing of the call took effect. If one call carries the changes of many, the caller finds the
    value and goes on without it (the coordinator does). Elsewhere it is a failure like any other.
    """


class StaleTerm(Exception):
    """The write was refused: a newer coordinator has raised the term."""


class ClusterStore(Protocol):
    """Every method raises StoreUnavailable. Writes that carry a term raise StaleTerm."""

    async def cluster_id(self) -> str:
        """Return the random id of this cluster: part of channel names, lock keys and batches."""
        ...

    async def register_types(
        self, configs: Sequence[TypeConfig]
    ) -> tuple[dict[str, int], dict[str, TypeConfig]]:
        """Make the types known; return the number of each type, and the cluster's configuration of
        those that differ.
        """
        ...

    async def type_ids(self) -> dict[str, int]: ...

    async def types(self) -> list[TypeConfig]: ...

    async def types_in_force(self) -> list[TypeConfig]:
        """Return the configurations that bind: not those that the next node may change."""
        ...

    async def join(self, member: Member, lock_keys: tuple[int, int]) -> int:
        """Write the member's row and return its age: one higher than any before."""
        ...

    async def update_member(
        self,
        incarnation: Incarnation,
        *,
        state: MemberState | None = None,
        deaf: bool | None = None,
        server: Server | None = None,
        unsettled: bool = False,
        member: Member | None = None,
    ) -> bool:
        """Change the given fields (or, with `member`, roles, types and backends); False: the row is
        gone.

        `server` is the server on which both locks are held, `unsettled` says that they are not.
        """
        ...

    async def come_back(
        self, incarnation: Incarnation, server: Server | None
    ) -> tuple[Server, list[ShardRow]] | None:
        """Write where both of the member's locks are held (None: they are not), and read its homes.

        Both are done on one server, which is returned with the homes. None: the member's row is
        gone.
        """
        ...

    async def leave(self, incarnation: Incarnation) -> None:
        """Remove the member's own row. The coordinator moves its shards, if any are left."""
        ...

    async def members(self) -> tuple[Server, list[Member]]:
        """Return the server that answered, and every member with its locks as held now, oldest
        first.
        """
        ...

    async def coordinator(self) -> CoordinatorRow: ...

    async def news(self, incarnation: Incarnation) -> News:
        """Return the values that a node at rest looks for: the term, requests to this member, and
        the state of its row.
        """
        ...

    async def shards(self, types: Sequence[str] | None = None) -> list[ShardRow]: ...

    async def homes(self, type_name: str, shards: Sequence[ShardId]) -> list[ShardRow]: ...

    async def home_counts(self) -> dict[Incarnation, int]:
        """Return how many shards each node has; nodes without any are left out."""
        ...

    async def locate(self, type_name: str, locations: Mapping[ShardId, str]) -> bool:
        """Set the locations that the application wants for these shards, by node name; False: the
        type is not known.
        """
        ...

    async def locations(
        self, type_name: str, known: int | None = None
    ) -> tuple[int, dict[ShardId, str]] | None:
        """Return the type's locations, with the number of their last change; None: no change since
        `known`.
        """
        ...

    async def journal_place(self, name: str, place: str) -> tuple[str, str]:
        """Return the name of a journal, and the place of the database that the cluster knows as
        that. It is the given one if the cluster knows none yet by that name. Where it knows this
        database as another journal, that one is returned.
        """
        ...

    async def use_journal(self, incarnation: Incarnation, name: str, place: str | None) -> str | None:
        """Say in a node's row that it uses a further journal, unless the cluster knows that in
        another place, or the place as another journal's; without a place, that it does not. Return
        the place that the cluster knows, as `journal_place` does, or nothing; None: the node has no
        row.
        """
        ...

    async def journals_in_use(self, *, but: Incarnation) -> frozenset[str]:
        """Return the further journals that nodes use which are up, without that one."""
        ...

    async def journals_used(self) -> frozenset[str]:
        """Return the further journals in which shards lie."""
        ...

    async def shard_journals(self, type_id: int) -> dict[ShardId, str]:
        """Return in which journals the shards of a type lie. StoreUnavailable is raised while there
        are `journals_to_read`.
        """
        ...

    async def journals_to_read(self) -> frozenset[str] | None:
        """Return the further journals that are to be read before any shard gets its first home:
        rows of shards may be lost here. None: that was done since the server last went on in
        another lineage, if it ever did.
        """
        ...

    async def restore_shards(self, term: Term, read: frozenset[str], found: Sequence[StoredShard]) -> bool:
        """Make rows for the shards that were found in further journals and have none here, each in
        its journal and without a home. `read`: the journals in which they were looked for; False,
        and nothing is written, if there are more. Guarded by the term.

        A journal may follow a resize that is lost here. A shard that there is not by the numbers
        here stands for the one that has its entities now.
        """
        ...

    async def introduce_workers(self, numbers: Mapping[str, int]) -> None:
        """Say how many workers each of these sets has at first. A set with a number keeps it."""
        ...

    async def workers(self) -> list[NumberOfWorkers]:
        """Return how many workers each set has, and is to have."""
        ...

    async def rescale(self, type_name: str, workers: int, by: str = "") -> NumberOfWorkers | None:
        """Say how many workers a set is to have, and return its row; None: there is no such set.

        The timeline notes `by`, if given.
        """
        ...

    async def put_in_force(self, term: Term, before: NumberOfWorkers) -> NumberOfWorkers | None:
        """Put the wanted number of workers in force, and return the row; None: it had another
        revision. Guarded by the term.
        """
        ...

    async def resize(self, type_name: str, known: int, wanted: int, by: str = "") -> bool:
        """Say how many shards a type is to have; False: it has not `known` of them, a resize is
        under way, or shards move to another journal. The timeline notes `by`, if given. Raises
        StoreUnavailable while there are `journals_to_read`.
        """
        ...

    async def renumber(
        self, term: Term, type_name: str, before: Numbering, upto: int, least_epoch: Epoch
    ) -> tuple[Numbering, list[ShardRow]] | None:
        """Take the step of a resize to the group `upto`: messages, timers and remembered entities
        of these groups get their new shards, and the shards a new epoch, `least_epoch` or a higher
        one. Guarded by the term.

        Returns the numbers of then, and the rows of the new shards. The same numbers as before: a
        part of the rows has moved, call again. None: the type has another revision, one of the
        shards has a home, or shards of the type move to another journal.
        """
        ...

    async def refile(self, term: Term) -> None:
        """Give messages the present shards that were stored for one that there is no more."""
        ...

    async def begin_move(self, type_id: int, shards: Sequence[ShardId], target: str) -> list[ShardId]:
        """Note that these shards are being copied to another journal, and return those of which it
        is noted now. None is if the type is being resized; a shard without a row has nothing to
        copy.
        """
        ...

    async def close_shards(self, type_id: int, shards: Sequence[ShardId], seconds: float) -> list[ShardId]:
        """Close shards that are being copied, and return those that were open. None of them gets a
        home from here on, until it is opened, or until its closing was not renewed in time.
        """
        ...

    async def renew_closings(self, type_id: int, shards: Sequence[ShardId], seconds: float) -> list[ShardId]:
        """Keep closed shards closed, and return them. The others were opened."""
        ...

    async def open_shards(self, type_id: int, shards: Sequence[ShardId]) -> list[ShardId]:
        """Open closed shards where they are, and return those that were closed."""
        ...

    async def closed_shards(self) -> list[ClosedShard]: ...

    async def open_lapsed(self, term: Term) -> list[ClosedShard]:
        """Open the shards whose closing was not renewed in time, and return them. Guarded by the
        term.
        """
        ...

    async def ask_to(
        self, request: LeaveRequest | None, incarnations: Sequence[Incarnation], by: str = ""
    ) -> list[Incarnation]:
        """Write an operator's request into these members' rows, or take it back; return those that
        have a row.

        The timeline notes `by`, if given.
        """
        ...

    async def decide(self, term: Term, changes: Sequence[HomeChange]) -> list[ShardRow]:
        """Write all changes whose row still has the expected epoch, in one transaction guarded by
        the term. A shard that is closed for a move gets no home: one that is to leave a home has
        none afterwards, and one without a home stays as it is.

        While there are `journals_to_read`, StoreUnavailable is raised if one of the shards has no
        row. Returns every named row as it is afterwards. Raises StoreRefused, and writes none, if
        one of them can never be a row.
        """
        ...

    async def bury(self, term: Term, incarnation: Incarnation) -> bool:
        """End the dead member's backends and remove its row; its shards' epochs are raised by
        `decide` after it.

        False: it holds a lock again, so it is not dead, and nothing is done. A member that comes
        back writes to its row once it has its locks: either that write comes first, or it finds no
        row.
        """
        ...

    async def record(self, decisions: Sequence[Decision]) -> None:
        """Append to the timeline; only its newest few thousand lines are kept."""
        ...

    async def close(self) -> None: ...

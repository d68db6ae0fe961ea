"""Moves shards from one journal database to another while the cluster works.

      in the source -- begin --> copying -- close --> no home -- switch --> in the target,
                                 rows, and             │                    a copy is left
                                 again what was        └ a stop: opened
                                 written since           in the source

Rows are copied in pieces. Triggers in the source note which events and snapshots are written or
deleted from then on; these are copied again. When little is left, some shards are closed: the
coordinator takes them from their homes, and gives them none. They are fenced, the rest is copied,
and one transaction in the cluster's own database says that they lie in the target from now on.

Contract: the coordinator's rows alone say where a shard lies, so until the switch the target's rows
are a copy that nothing reads, and after it those of the source are. The command may be killed at
any point: the same call goes on, and a shard that was closed is opened by the coordinator once its
time has passed. Each piece holds the shards' rows in the database that it changes, and checks that
they are as the command left them: a command that was frozen meanwhile changes nothing.

Messages are taken out of the source before the switch, so that none takes effect there any more,
and out of sight of the target until then. One that has left a mark in the target, where its row
would now stand, has taken effect. A mark elsewhere says that a row waits in the source: it is
removed only when the row is gone from all journals.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.copied_rows import (
    EACH,
    NOT_CLEARED,
    NOTES_AT_ONCE,
    Different,
    RowCopy,
    select_of_shards,
    stage,
    unstage,
)
from sharding_app.adapters.postgres.deletion import UnknownTypes
from sharding_app.adapters.postgres.further_journals import (
    Connection,
    Further,
    JournalDown,
    connect,
    epochs,
    rows,
    stand,
    whereabouts_of,
)
from sharding_app.adapters.postgres.moving_locks import hold_beginnings, move_alone
from sharding_app.adapters.postgres.moving_projections import Followers
from sharding_app.adapters.postgres.moving_sessions import briefly, rows_session, session
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.store import config_of
from sharding_app.adapters.postgres.within import secure
from sharding_app.ports.deliveries import PARTLY_ELSEWHERE
from sharding_app.protocol import moving as moves
from sharding_app.protocol.ids import Epoch, ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN, PROJECTION_WORKERS
from sharding_app.protocol.moving import CannotMove, Limits, Step, listed, opened
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.whereabouts import Whereabouts

LIMITS = Limits()
TRIES_WHILE_CLOSED = 12
_LOST = (
    "DATABASE says that they lie elsewhere: one of the two databases has lost a move, with a failover or a restore. Nothing is"
    " changed: if DATABASE has lost it, these are their last events. The page on several journals says how the rows are put right"
    " by hand."
)

_BUT = "AND r.id <> ALL ({}::text[])"
REMEMBERED = "type_id, shard, entity, epoch, at"
MESSAGE = (
    "id, type_id, shard, entity, epoch, seq, position, target_type, target, command, args, due, key, every, reply_to,"
    " on_failure, failures, parked, error, at, occasion"
)
MARK = "id, type_id, shard, entity, epoch, journal, partial, at"


class Wanted(NamedTuple):
    """What is to be moved."""

    type: str
    type_id: int
    numbering: Numbering
    places: Whereabouts
    target: str
    shards: Mapping[str, Sequence[ShardId]]
    "By the journals in which they lie."


def plan(cluster: Connection, type_name: str, target: str, shards: Sequence[ShardId] | None = None) -> Wanted:
    """Return which shards would be moved; without `shards` all that lie elsewhere. Raises
    UnknownTypes, CannotMove.
    """
    if type_name.startswith(PROJECTION_WORKERS) and target:
        raise CannotMove(
            f"{type_name} stays in DATABASE: it stores nothing, and a journal that is down would stop it for all others."
        )
    for number, *config in rows(cluster, "types", {}):
        if config[0] != type_name:
            continue
        numbering = config_of(config).numbering
        if numbering.resizing:
            raise CannotMove(
                f"{type_name} is being resized: wait until that is done (manage.py sharding_resize {type_name})."
            )
        found: dict[str, list[ShardId]] = {}
        lying = cluster.execute(
            "SELECT shard, journal FROM sharding_shard WHERE type_id = %s AND shard < %s ORDER BY shard",
            [number, numbering.shards],
        ).fetchall()
        if shards is not None and (unknown := set(shards) - {shard for shard, _ in lying}):
            raise CannotMove(
                f"{type_name} has no rows of the shards {listed(unknown)}: only one that has had a home can be moved."
            )
        for shard, journal in lying:
            if journal != target and (shards is None or shard in shards):
                found.setdefault(journal, []).append(shard)
        places = whereabouts_of(rows(cluster, "whereabouts", {"type_id": number})[0])
        wanted = Wanted(type_name, number, numbering, places, target, found)
        _refuse_known(cluster, wanted)
        return wanted
    raise UnknownTypes([type_name])


def move_shards(
    conninfo: Conninfo, further: Further, type_name: str, target: str, shards: Sequence[ShardId] | None, by: str,
    *, at_once: int = 8, names: Callable[[str], str] = str,
) -> Generator[Step]:  # fmt: skip
    """Move shards of a type. Yields after each step. `names`: journals for people.

    Goes on where a former call was stopped. Raises CannotMove, UnknownTypes, JournalDown,
    psycopg.Error.
    """
    with session(CLUSTERS_OWN, conninfo, further) as cluster:
        _be_alone(cluster, type_name)
        wanted = plan(cluster, type_name, target, shards)
        _refuse_nodes(cluster, wanted, names)
        for journal, lying in wanted.shards.items():
            with ExitStack() as stack:
                source, entered = (
                    stack.enter_context(
                        rows_session(name, conninfo, further, wanted.type_id, type_name, names)
                    )
                    for name in (journal, target)
                )
                move = _Move(wanted, journal, lying, cluster, source, entered, by, names)
                yield from move.run(at_once)
        _settle(cluster, wanted.type_id, type_name, conninfo, further, names, needed=wanted.shards or None)


def settle_moves(
    conninfo: Conninfo, further: Further, type_name: str, *, gone: str | None = None,
    names: Callable[[str], str] = str, needed: Collection[str] | None = None,
) -> None:  # fmt: skip
    """End what a call that was stopped has left undone behind its last switch, but not in a journal
    that is `gone` for good. `needed`: the journals that have to answer; None: all. Raises as
    `move_shards`.
    """
    with session(CLUSTERS_OWN, conninfo, further) as cluster:
        number = _be_alone(cluster, type_name)
        _settle(cluster, number, type_name, conninfo, further, names, gone, needed=needed)


def cancel(
    conninfo: Conninfo, further: Further, type_name: str, by: str, *, gone: str | None = None,
    names: Callable[[str], str] = str,
) -> list[ShardId]:  # fmt: skip
    """Take back what is not switched: drop the copies, and open shards that are closed. Returns the
    shards. `gone`: a journal that is lost for good, whose copies are not dropped. Raises as
    `move_shards`.
    """
    with session(CLUSTERS_OWN, conninfo, further) as cluster:
        number = _be_alone(cluster, type_name)
        moving = cluster.execute(
            "SELECT source, target, array_agg(shard ORDER BY shard) FROM sharding_move"
            " WHERE type_id = %s AND step <> 'moved' GROUP BY source, target",
            [number],
        ).fetchall()
        if gone is not None:
            _refuse_gone(gone, further, moving, names)
        done: list[ShardId] = []
        for journal, target, shards in moving:
            wanted = plan(cluster, type_name, target, shards)
            with ExitStack() as stack:
                source, *entered = (
                    stack.enter_context(rows_session(name, conninfo, further, number, type_name, names))
                    for name in (journal, target)
                    if name != gone
                )
                if entered:
                    _Move(wanted, journal, shards, cluster, source, entered[0], by, names).take_back()
                else:
                    _Remains(wanted, journal, shards, cluster, source, names).take_back_without_target(by)
            done += shards
        secure(cluster)  # also where a former call has left nothing
        return sorted(done)


def _refuse_gone(
    gone: str,
    further: Further,
    moving: Sequence[tuple[str, str, Sequence[ShardId]]],
    names: Callable[[str], str],
) -> None:
    refuse_answering(gone, further, names)
    for journal, target, shards in moving:
        if journal == gone:
            raise CannotMove(
                f"Shards {listed(shards)} lie in {names(gone)}, and {names(target)} has an unfinished copy of them. Put"
                f" {names(gone)} back from a backup first: nothing is deleted in {names(target)} before that."
            )


def refuse_answering(gone: str, further: Further, names: Callable[[str], str]) -> None:
    """Raise CannotMove where a journal that is said to be lost for good answers."""
    if gone not in further:
        return
    try:
        connect(gone, further, "moving").close()
    except JournalDown:
        return
    raise CannotMove(f"{names(gone)} answers: it is not lost. Run the command without --gone.")


class _Remains:
    """Carries out those requests of a move that concern the cluster's own database and the source
    alone.
    """

    def __init__(
        self, wanted: Wanted, journal: str, shards: Sequence[ShardId], cluster: Connection, source: Connection,
        names: Callable[[str], str],
    ) -> None:  # fmt: skip
        self._wanted = wanted
        self._type_id = wanted.type_id
        self._from = journal
        self._shards = sorted(shards)
        self._cluster = cluster
        self._source = source
        self._names = names
        self._works = self._all_works()

    def take_back_without_target(self, by: str) -> None:
        """Open the shards, and forget that they were on their way."""
        for _ in self._carry_out(self._course().take_back(target_is_gone=True)):
            pass
        detail = (
            f"shards {listed(self._shards)} from {self._names(self._wanted.target)}, which is lost, by {by}"
        )
        note = {"action": "move_taken_back", "type": self._wanted.type, "detail": detail}
        self._cluster.execute(QUERIES["archive_note"], note)

    def _course(self) -> moves.Move:
        wanted = moves.Wanted(self._wanted.type, self._from, self._wanted.target, self._shards)
        return moves.Move(wanted, LIMITS, self._names)

    def _carry_out(self, course: moves.Course) -> Iterator[Step]:
        """Do what it asks for, one request after the other. Yields its steps."""
        request = next(course)
        while True:
            value: Any = None
            try:
                if isinstance(request, Step):
                    yield request
                else:
                    value = self._do(request)
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001  (the course raises it again)
                request = course.throw(error)
                continue
            try:
                request = course.send(moves.Answer(time.monotonic(), value))
            except StopIteration:
                return

    def _do(self, request: moves.Request) -> Any:
        do = self._works[type(request)]
        if not getattr(request, "at_last", False):
            return do(request)
        with suppress(psycopg.Error):
            return do(request)

    def _all_works(self) -> dict[type, Callable[[Any], Any]]:
        return {
            moves.Open: lambda each: self._open(each.shards),
            moves.Unstash: lambda each: self._unstash(each.shards),
            moves.Elsewhere: lambda each: self._elsewhere(each.shards),
            moves.Unwatch: lambda _: self._end(),
            moves.Forget: lambda each: self._forget(each.shards),
        }

    def _open(self, shards: Sequence[ShardId]) -> None:
        self._cluster.execute(QUERIES["move_open"], {"type_id": self._type_id, "shards": list(shards)})

    def _unstash(self, shards: Sequence[ShardId]) -> None:
        self._source.execute(QUERIES["unstash"], {"type_id": self._type_id, "shards": list(shards)})

    def _elsewhere(self, shards: Sequence[ShardId]) -> list[ShardId]:
        """Return those that do not lie in the source, by the cluster's rows or by its own."""
        named = {"type_id": self._type_id, "shards": list(shards)}
        lying = dict(rows(self._cluster, "shard_journals", named))
        found = {each for each in shards if lying.get(each) != self._from}
        if self._from:
            found |= {shard for (shard,) in rows(self._source, "move_left", named)}
        return sorted(found)

    def _end(self) -> None:
        """Note nothing more of the type in the source."""
        briefly(self._source, lambda: _unwatch(self._source, self._type_id))

    def _forget(self, shards: Sequence[ShardId]) -> None:
        secure(self._source)  # otherwise messages may lie in a stash again that no row tells of
        self._cluster.execute(
            "DELETE FROM sharding_move WHERE type_id = %s AND shard = ANY (%s) AND step <> 'moved'",
            [self._type_id, list(shards)],
        )


class _Move(_Remains):
    """Carries out the requests of a move: shards of one type, from one journal to another."""

    def __init__(
        self, wanted: Wanted, journal: str, shards: Sequence[ShardId], cluster: Connection, source: Connection,
        target: Connection, by: str, names: Callable[[str], str],
    ) -> None:  # fmt: skip
        super().__init__(wanted, journal, shards, cluster, source, names)
        self._target = target
        self._switching = cluster if wanted.target else target
        "Leads to the cluster's own database: where that is the target, with the staged rows."
        self._left_out: list[str] = []
        "Timers that are not put into the target before the switch."
        self._by = by
        self._known: dict[ShardId, Epoch] = {}
        "Epochs of the shards' rows in a further target, as this command has written them."
        self._copy = RowCopy(wanted.type_id, wanted.places.shard_of, shards, source, target, self._hold)
        self._copying: dict[str, Iterator[int]] = {}
        "By table: the pieces that are left."
        self._followers = Followers(
            wanted.type, wanted.type_id, wanted.places, self._switching, source, journal, wanted.target, names
        )

    def run(self, at_once: int) -> Iterator[Step]:
        return self._carry_out(self._course().run(at_once))

    def take_back(self) -> None:
        """Drop the copy of shards that have not been switched, and open them."""
        for _ in self._carry_out(self._course().take_back()):
            pass

    def _all_works(self) -> dict[type, Callable[[Any], Any]]:
        return super()._all_works() | {
            moves.Begin: lambda _: self._begin(),
            moves.Prepare: lambda each: self._prepare(each.shards),
            moves.Watch: lambda _: briefly(self._source, self._watch),
            moves.ClearCopy: lambda _: self._copy.clear(),
            moves.Copy: lambda each: self._copy_piece(each.table),
            moves.Apply: lambda _: self._apply(),
            moves.Compare: lambda _: self._compare(),
            moves.Unpassed: lambda each: self._followers.unpassed(each.shards, closed=each.closed),
            moves.Close: lambda each: self._close(each.shards, each.seconds),
            moves.Renew: lambda each: self._renew(each.shards, each.seconds),
            moves.Homes: lambda each: self._homes(each.shards),
            moves.Fence: lambda each: self._fence(each.shards),
            moves.Stand: lambda each: self._stand(each.raised, in_target=each.in_target),
            moves.PutRest: lambda each: self._put_rest(
                each.shards, self._source, "moving_message" if each.stashed else "message"
            ),
            moves.Stash: lambda each: self._stash(each.raised),
            moves.Switch: lambda each: self._switch(each.raised),
            moves.Leave: lambda _: self._leave(),
            moves.ClearRest: lambda each: self._clear_rest_held(each.shards),
            moves.Wait: lambda each: time.sleep(each.seconds),
        }

    # -- The beginning -------------------------------------------------------------------------

    def _begin(self) -> None:
        wanted = self._wanted
        with self._cluster.transaction():
            if not hold_beginnings(self._cluster, self._type_id):
                raise CannotMove(
                    f"An erasure goes through copies that shards of {wanted.type} have left: wait until it has ended."
                )
            self._cluster.execute("SELECT FROM sharding_type WHERE id = %s FOR UPDATE", [self._type_id])
            numbering = Numbering(*rows(self._cluster, "journal_numbers", {"type_id": self._type_id})[0])
            if numbering.resizing:
                raise CannotMove(f"{wanted.type} is being resized: wait until that is done.")
            if numbering != wanted.numbering:
                # By the former numbers other entities would be copied than those of the shards.
                raise CannotMove(
                    f"{wanted.type} was resized since this command has looked at it. Run the command again."
                )
            given = {
                "type_id": self._type_id, "shards": self._shards, "source": self._from, "target": wanted.target,
            }  # fmt: skip
            self._cluster.execute(QUERIES["move_begin"], given)

    def _prepare(self, shards: Sequence[ShardId]) -> bool:
        """Make rows of the type and of the shards in a further target, which no home has taken."""
        here = epochs(self._cluster, self._type_id, shards)
        self._known |= {shard: epoch for shard, (epoch, _) in here.items()}
        with self._target.transaction():
            self._refuse_lived(shards)
            present = self._present(shards)
            if not stand(self._cluster, self._target, self._wanted.type, self._type_id, present, copied=True):
                return False
        self._target.execute(
            "UPDATE sharding_shard SET journal = '' WHERE type_id = %s AND shard = ANY (%s) AND journal <> ''",
            [self._type_id, list(shards)],
        )
        return True

    def _refuse_lived(self, shards: Sequence[ShardId]) -> None:
        """Refuse shards that have had a home in a further target, which is not left since."""
        lived = self._target.execute(
            "SELECT shard FROM sharding_shard WHERE type_id = %s AND shard = ANY (%s) AND home IS NOT NULL"
            " ORDER BY shard FOR NO KEY UPDATE",
            [self._type_id, list(shards)],
        ).fetchall()
        if lived:
            raise CannotMove(
                f"In {self._names(self._wanted.target)} the shards {listed(each for (each,) in lived)} have a home. {_LOST}"
            )

    def _present(self, shards: Sequence[ShardId]) -> dict[ShardId, Epoch]:
        return {shard: self._known[shard] for shard in shards}

    def _watch(self) -> bool:
        """Note from now on which rows of the type are written or deleted in the source. Tell
        whether they have been noted since a former call began. In another lineage of a server the
        copy begins again: its last rows may be missing there, or those that it was made of.
        """
        number, run = self._type_id, self._source.execute
        self._refuse_partitioning()
        _make_tables(self._source)
        lineages = ", ".join(rows(each, "move_lineage", {})[0][0] for each in (self._source, self._target))
        found = run(
            "SELECT target, lineages, shards, walking FROM sharding_moving WHERE type_id = %s", [number]
        ).fetchall()
        if found and found[0][3] != NOT_CLEARED:
            *known, shards, _ = found[0]
            if (known, set(shards)) == ([self._wanted.target, lineages], set(self._shards)):
                return True
        given = {
            "type": number, "target": self._wanted.target, "shards": self._shards, "lineages": lineages,
            "walking": NOT_CLEARED,
        }  # fmt: skip
        run(
            "INSERT INTO sharding_moving AS m VALUES (%(type)s, %(target)s, %(shards)s, %(lineages)s, %(walking)s, '', 0)"
            " ON CONFLICT (type_id) DO UPDATE SET target = %(target)s, shards = %(shards)s, lineages = %(lineages)s,"
            " walking = %(walking)s, entity = '', seq = 0",
            given,
        )
        if not found:
            for table in ("event", "snapshot"):
                for event, image in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                    run(
                        sql.SQL(
                            "CREATE TRIGGER {} AFTER {} ON {} REFERENCING {} TABLE AS touched_rows"
                            " FOR EACH STATEMENT EXECUTE FUNCTION sharding_note_moving_v1({})"
                        ).format(
                            _trigger(number, event), sql.SQL(event), sql.Identifier(f"sharding_{table}"),
                            sql.SQL(image), sql.Literal(str(number)),
                        )
                    )  # fmt: skip
            # A change of the layout may have begun while the triggers waited for the table. Another
            # one waits for them now, and then sees the tables that were made above.
            self._refuse_partitioning()
        return False

    def _refuse_partitioning(self) -> None:
        ((partitioning,),) = self._source.execute(
            "SELECT to_regclass('sharding_partitioning') IS NOT NULL"
        ).fetchall()
        if partitioning:
            raise CannotMove(
                f"The layout of {self._names(self._from)} is being changed: end that first (manage.py sharding_partition)."
            )

    # -- The copy ------------------------------------------------------------------------------

    def _copy_piece(self, table: str) -> int | None:
        return next(self._copying.setdefault(table, self._copy.all(table)), None)

    def _apply(self) -> moves.Applied:
        number = self._copy.apply()
        return moves.Applied(number, number == NOTES_AT_ONCE)

    def _compare(self) -> None:
        try:
            self._copy.compare()
        except Different as error:
            raise CannotMove(
                f"The copy differs from its source: {error}. The shards lie where they were. Was {self._names(self._from)} or"
                f" {self._names(self._wanted.target)} put back to a former state since the copy began? Take the copy back with"
                " --cancel, and move the shards again. If none of the two was, report this."
            ) from error

    def _hold(self, shards: Sequence[ShardId]) -> dict[ShardId, Epoch]:
        """Hold the target's rows of shards to the end of its transaction; return their epochs."""
        values = {
            "type_id": self._type_id, "shards": list(shards), "own": not self._wanted.target, "source": self._from,
            "epochs": [self._known.get(each, 0) for each in shards],
        }  # fmt: skip
        held = dict(rows(self._target, "move_hold", values))
        if len(held) < len(shards):
            raise CannotMove(
                f"Shards {listed(set(shards) - set(held))} are not as this command left them in"
                f" {self._names(self._wanted.target)}: another command has gone on with the move. Look with"
                " manage.py sharding_journals."
            )
        return held

    # -- The switch ----------------------------------------------------------------------------

    def _close(self, shards: Sequence[ShardId], seconds: float) -> None:
        values = {"type_id": self._type_id, "shards": list(shards), "seconds": seconds}
        # An append in a transaction of the application holds a shard's row to the end of that one.
        close = partial(self._cluster.execute, QUERIES["move_close"], values)
        briefly(self._cluster, close, TRIES_WHILE_CLOSED)

    def _renew(self, shards: Sequence[ShardId], seconds: float) -> list[ShardId]:
        values = {"type_id": self._type_id, "shards": list(shards), "seconds": seconds}
        return [shard for (shard,) in rows(self._cluster, "move_renew", values)]

    def _homes(self, shards: Sequence[ShardId]) -> dict[ShardId, str]:
        found = epochs(self._cluster, self._type_id, shards)
        return {shard: home for shard, (_, home) in found.items() if home is not None}

    def _fence(self, shards: Sequence[ShardId]) -> dict[ShardId, Epoch]:
        values = {"type_id": self._type_id, "shards": list(shards), "source": self._from}
        return dict(rows(self._cluster, "move_fence", values))

    def _stand(self, raised: Mapping[ShardId, Epoch], *, in_target: bool) -> bool:
        if in_target:
            self._known |= raised
        journal = self._target if in_target else self._source
        return stand(self._cluster, journal, self._wanted.type, self._type_id, raised, copied=in_target)

    def _stash(self, raised: Mapping[ShardId, Epoch]) -> int:
        values = {"type_id": self._type_id, "shards": list(raised), "epochs": list(raised.values())}
        with self._source.transaction():
            ((held,),) = rows(self._source, "move_stash", values)
            if held < len(raised):
                raise CannotMove(opened(raised))
        return int(held)

    def _switch(self, raised: Mapping[ShardId, Epoch]) -> int:
        say = self._say_so if self._from else self._leave_clusters_own
        briefly(self._switching, partial(say, raised), TRIES_WHILE_CLOSED)
        secure(self._switching)
        self._copy.moving -= raised.keys()
        return len(raised)

    def _leave_clusters_own(self, raised: Mapping[ShardId, Epoch]) -> None:
        """Take messages, remembered ids and marks out of the cluster's own database in the very
        transaction that says where the shards lie from now on.
        """
        named = {"type_id": self._type_id, "shards": list(raised)}
        self._hold_type()
        self._cluster.execute(QUERIES["move_lock_messages"], named)
        self._put_rest(list(raised), self._cluster, "message")
        self._cluster.execute(QUERIES["move_clear_messages"], named)
        self._say_so(raised)
        self._cluster.execute(QUERIES["move_clear_remembered"], named)
        self._cluster.execute(QUERIES["move_clear_marks"], named)

    def _put_rest(self, shards: Sequence[ShardId], source: Connection, messages: str) -> None:
        """Copy messages, remembered ids and marks, in place of those that the target has.
        `messages`: the table without its prefix.

        The rows come into tables of this session first: no node waits for what this process sends.
        """
        tables = (
            (messages, "message", MESSAGE, sql.SQL("AND r.epoch IS NOT NULL")),
            ("remembered", "remembered", REMEMBERED, EACH),
            ("taken", "taken", MARK, EACH),
        )
        for table, into, columns, condition in tables:
            selected = select_of_shards(table, columns, self._type_id, dict.fromkeys(shards, 0), condition)
            stage(source, selected, self._target, into, columns)

        def put() -> None:
            self._target.execute("LOCK TABLE sharding_taken IN SHARE ROW EXCLUSIVE MODE")
            held = self._hold(shards)
            self._clear_rest(shards)
            self._left_out = [own for own, *_ in self._of_one_key()]
            for _, into, columns, _ in tables:
                but = sql.SQL(_BUT).format(sql.Literal(self._left_out)) if into == "message" else EACH
                unstage(self._target, into, columns, self._type_id, held, but)
            self._target.execute(
                QUERIES["move_settle_marks"],
                {"type_id": self._type_id, "shards": list(shards), "partly": PARTLY_ELSEWHERE},
            )

        briefly(self._target, put, TRIES_WHILE_CLOSED)
        secure(self._target)  # the last of the copy: the switch is next, in another database

    def _clear_rest(self, shards: Sequence[ShardId]) -> None:
        named = {"type_id": self._type_id, "shards": list(shards)}
        self._target.execute(QUERIES["move_clear_messages"], named)
        self._target.execute(QUERIES["move_clear_remembered"], named)
        self._target.execute(QUERIES["move_clear_marks"], named)

    def _of_one_key(self) -> list[tuple[str, str, bool]]:
        """Return staged timers that come to the cluster's own database, with those of the same keys
        there, and whether the staged ones are the later ones. The others were set from outside.
        """
        if self._wanted.target:
            return []
        own = self._target.execute(
            "SELECT entity, key, id, at FROM pg_temp.sharding_staged_message WHERE key IS NOT NULL"
        ).fetchall()
        keys = {"entities": [each[0] for each in own], "keys": [each[1] for each in own]}
        outside = {
            (entity, key): (message, at)
            for entity, key, message, at in rows(
                self._target, "move_timers", {"type_id": self._type_id, **keys}
            )
        }
        return [
            (message, outside[entity, key][0], outside[entity, key][1] <= at)
            for entity, key, message, at in own
            if (entity, key) in outside
        ]

    def _replace_timers(self, raised: Mapping[ShardId, Epoch]) -> None:
        """Let the later one count of two timers of an entity with one key, its own and one from
        outside, as where both lie in one journal. Until the shards lie here, both fire.
        """
        found = self._of_one_key()
        gone = [other for _, other, is_later in found if is_later]
        self._target.execute("DELETE FROM sharding_message WHERE id = ANY (%s)", [gone])
        come = {own for own, _, is_later in found if is_later} | set(self._left_out)
        come -= {own for own, _, is_later in found if not is_later}
        of_these = sql.SQL("AND r.id = ANY ({})").format(sql.Literal([*come]))
        unstage(self._target, "message", MESSAGE, self._type_id, raised, of_these)

    def _clear_rest_held(self, shards: Sequence[ShardId]) -> None:
        with self._target.transaction():
            self._hold(shards)
            self._clear_rest(shards)

    def _say_so(self, raised: Mapping[ShardId, Epoch]) -> None:
        """The switch itself. What projections have passed is looked at once more, while none begins
        or goes on.
        """
        self._hold_type()
        self._switching.execute(
            "LOCK TABLE sharding_projection, sharding_position IN SHARE ROW EXCLUSIVE MODE"
        )
        if why := self._followers.unpassed(list(raised)):
            raise CannotMove(why)
        self._followers.let_go(list(raised))
        if not self._wanted.target:
            self._replace_timers(raised)
        values = {
            "type_id": self._type_id, "shards": list(raised), "epochs": list(raised.values()), "source": self._from,
            "target": self._wanted.target, "from": self._names(self._from), "to": self._names(self._wanted.target),
            "by": self._by,
        }  # fmt: skip
        ((switched,),) = rows(self._switching, "move_switch", values)
        if switched < len(raised):
            raise CannotMove(opened(raised))

    def _hold_type(self) -> None:
        """Lock first what closings and resizes lock first."""
        self._switching.execute("SELECT FROM sharding_type WHERE id = %s FOR NO KEY UPDATE", [self._type_id])

    # -- The end -------------------------------------------------------------------------------

    def _forget(self, shards: Sequence[ShardId]) -> None:
        secure(self._target)  # a copy that comes back would be known to no erasure
        super()._forget(shards)

    def _leave(self) -> None:
        _leave(self._cluster, self._source, self._type_id, self._wanted.type, self._from, self._names)


def _settle(
    cluster: Connection, type_id: int, type_name: str, conninfo: Conninfo, further: Further,
    names: Callable[[str], str], gone: str | None = None, *, needed: Collection[str] | None = None,
) -> None:  # fmt: skip
    """Let former journals of shards say so, and note nothing more of the type where none is left to
    be copied. A journal that is down and not `needed` is left to a later call.
    """
    # The switch of a former call is visible, and the standby may lack it: its session was ended.
    secure(cluster)
    for journal, copying in cluster.execute(
        "SELECT source, bool_or(step <> 'moved') FROM sharding_move WHERE type_id = %s GROUP BY source",
        [type_id],
    ).fetchall():
        if journal == gone:
            continue
        try:
            with rows_session(journal, conninfo, further, type_id, type_name, names) as source:
                _leave(cluster, source, type_id, type_name, journal, names)
                if not copying:
                    briefly(source, partial(_unwatch, source, type_id))
        except JournalDown:
            if needed is None or journal in needed:
                raise


def _leave(
    cluster: Connection, source: Connection, type_id: int, type_name: str, journal: str,
    names: Callable[[str], str],
) -> None:  # fmt: skip
    """Let a further journal say which shards lie elsewhere, and leave only their history there."""
    if not journal:
        return  # done by the transaction of the switch
    gone: dict[ShardId, tuple[str, Epoch]] = {
        shard: (elsewhere, epoch)
        for shard, elsewhere, epoch in cluster.execute(
            "SELECT m.shard, s.journal, s.epoch FROM sharding_move m JOIN sharding_shard s USING (type_id, shard)"
            " WHERE m.type_id = %s AND m.source = %s AND m.step = 'moved' AND s.journal <> %s",
            [type_id, journal, journal],
        ).fetchall()
    }
    found = epochs(source, type_id, list(gone))
    # The source has lost the fence with a failover: its row is as its last home has left it.
    former = {shard: gone[shard][1] for shard, (_, home) in found.items() if home is not None}
    if former:
        stand(cluster, source, type_name, type_id, former)
        found = epochs(source, type_id, list(gone))
    known = {shard: epoch for shard, (epoch, home) in found.items() if home is None}
    values = {
        "type_id": type_id, "shards": list(known), "epochs": list(known.values()),
        "elsewhere": [names(gone[each][0]) for each in known],
    }  # fmt: skip
    with source.transaction():
        _make_tables(source)
        source.execute(QUERIES["move_leave"], values)


def _make_tables(source: Connection) -> None:
    """Make what is missing. No other command drops any of it before the transaction ends."""
    _hold_tables(source)
    source.execute(
        "CREATE TABLE IF NOT EXISTS sharding_moving (type_id integer PRIMARY KEY, target text NOT NULL,"
        ' shards integer[] NOT NULL, lineages text NOT NULL, walking text NOT NULL, entity text COLLATE "C" NOT NULL, seq bigint NOT NULL)'
    )
    source.execute(
        "CREATE TABLE IF NOT EXISTS sharding_moving_touched (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        ' type_id integer NOT NULL, entity text COLLATE "C" NOT NULL, shard integer NOT NULL, first bigint NOT NULL, last bigint NOT NULL)'
        " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)"
    )
    # Each look at marks asks for ids here.
    source.execute(
        "CREATE TABLE IF NOT EXISTS sharding_moving_message (LIKE sharding_message, PRIMARY KEY (id))"
    )


def _hold_tables(source: Connection) -> None:
    source.execute("SELECT pg_advisory_xact_lock(hashtext('sharding_move_journal/tables'))")


def _unwatch(source: Connection, number: int) -> None:
    _hold_tables(source)
    ((there,),) = source.execute("SELECT to_regclass('sharding_moving') IS NOT NULL").fetchall()
    if not there:
        return
    for table in ("event", "snapshot"):
        for event in ("INSERT", "UPDATE", "DELETE"):
            source.execute(
                sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
                    _trigger(number, event), sql.Identifier(f"sharding_{table}")
                )
            )
    source.execute("DELETE FROM sharding_moving WHERE type_id = %s", [number])
    source.execute("DELETE FROM sharding_moving_touched WHERE type_id = %s", [number])
    # A command of another type may begin meanwhile. And one that was killed may have taken messages
    # out of shards that this one does not move: their next home puts them back.
    source.execute("LOCK TABLE sharding_moving, sharding_moving_message IN ACCESS EXCLUSIVE MODE")
    ((in_use,),) = source.execute(
        "SELECT EXISTS (SELECT FROM sharding_moving) OR EXISTS (SELECT FROM sharding_moving_message)"
    ).fetchall()
    if not in_use:
        source.execute("DROP TABLE sharding_moving, sharding_moving_touched, sharding_moving_message")


# -- What is refused ------------------------------------------------------------------------------


def _be_alone(cluster: Connection, type_name: str) -> int:
    """Be the only command that moves shards of a type, as long as this session lasts; return the
    number of the type.
    """
    ids: dict[str, int] = {name: number for number, name, *_ in rows(cluster, "types", {})}
    if type_name not in ids:
        raise UnknownTypes([type_name])
    if not move_alone(cluster, ids[type_name]):
        raise CannotMove(
            f"Another command is at work on what {type_name} has stored: sharding_move_journal, sharding_remove_journal or"
            " sharding_import. Wait until it has ended."
        )
    return ids[type_name]


def _refuse_known(cluster: Connection, wanted: Wanted) -> None:
    given = [each for lying in wanted.shards.values() for each in lying]
    known = cluster.execute(
        "SELECT shard, target, step FROM sharding_move WHERE type_id = %s AND shard = ANY (%s)",
        [wanted.type_id, given],
    ).fetchall()
    if left := [shard for shard, _, step in known if step == "moved"]:
        raise CannotMove(
            f"Shards {listed(left)} have left a copy in a former journal: delete it first (manage.py sharding_move_journal"
            f" {wanted.type} --delete-source)."
        )
    if others := [shard for shard, target, _ in known if target != wanted.target]:
        raise CannotMove(
            f"Shards {listed(others)} are on their way to another journal: go on with that, or take it back (manage.py"
            f" sharding_move_journal {wanted.type} --cancel)."
        )


def _refuse_nodes(cluster: Connection, wanted: Wanted, names: Callable[[str], str]) -> None:
    """Refuse a target that some node does not use: it could not be a home of the shards."""
    if not wanted.target:
        return
    lacking = cluster.execute(
        "SELECT name FROM sharding_node WHERE NOT journals ? %s ORDER BY name", [wanted.target]
    ).fetchall()
    if lacking:
        raise CannotMove(
            f"These nodes do not use {names(wanted.target)}: {', '.join(name for (name,) in lacking)}. Give them the settings, and"
            " start them anew; manage.py sharding_journals says whether the journal can be used."
        )


def _trigger(type_id: int, event: str) -> sql.Identifier:
    return sql.Identifier(f"sharding_moving_{type_id}_{event.lower()}")

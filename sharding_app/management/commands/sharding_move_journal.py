"""`manage.py sharding_move_journal`: move shards to another journal while the cluster works."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError, connections

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.left_copies import NotDeleted, delete_left_copies
from sharding_app.adapters.postgres.moving import cancel, move_shards, refuse_answering, settle_moves
from sharding_app.management.deletion_command import DatabaseCommand, amount
from sharding_app.management.operator_command import refused, signed
from sharding_app.management.progress import Progress
from sharding_app.operations.connectivity import UNREACHABLE, CannotReach, database_trouble
from sharding_app.operations.console import counted
from sharding_app.operations.each_journal import JournalsDown, journal_name
from sharding_app.operations.journals import read_journals, why_unusable
from sharding_app.operations.moves import Moving, read_moves
from sharding_app.operations.snapshot import read_snapshot
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.moving import CannotMove, Step, listed
from sharding_app.settings.load import get_settings

AT_ONCE = 8
_IF_IT_COMES_BACK = (
    "An erasure does not reach these rows. Should the server come back, drop this database before a process uses it. If other"
    " shards lie there, begin a move of these shards there, and take it back with --cancel: that deletes the rows."
)


class Command(DatabaseCommand):
    help = (
        "Move shards of a type to another journal (SHARDING['JOURNALS']) while the cluster works. Their rows are copied, what\n"
        "is written meanwhile is copied again, and then some shards at a time have no home for a moment, in which they change\n"
        "over. Calls wait that long. The events and snapshots in the former journal stay until --delete-source deletes them.\n"
        "Run it as the owner of the tables. If it is interrupted, run it again. Without --yes it only says what it would do.\n\n"
        "Examples:\n"
        "  manage.py sharding_move_journal                                     what moves, and what was left behind\n"
        "  manage.py sharding_move_journal shop.Cart --to journal_b --yes      all shards of a type\n"
        "  manage.py sharding_move_journal shop.Cart --to journal_b --shards 0-31,40 --yes\n"
        "  manage.py sharding_move_journal shop.Cart --delete-source --yes     delete the copies that were left behind\n"
        "  manage.py sharding_move_journal shop.Cart --cancel                  take back what has not changed over\n"
        "  manage.py sharding_move_journal shop.Cart --cancel --gone journal_b   although its server is lost for good\n\n"
        "Exit codes: 0 done, 1 refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", nargs="?", help="the entity type, such as shop.Cart")
        parser.add_argument("--to", metavar="NAME", help="the journal in which the shards are to lie")
        parser.add_argument(
            "--shards", metavar="N,N-M", help="only these shards (default: all that lie elsewhere)"
        )
        parser.add_argument(
            "--at-once",
            type=int,
            default=AT_ONCE,
            metavar="N",
            help=f"how many shards change over together (default: {AT_ONCE})",
        )
        parser.add_argument(
            "--delete-source", action="store_true", help="delete the copies that moves have left behind"
        )
        parser.add_argument(
            "--cancel", action="store_true", help="delete copies of shards that have not changed over"
        )
        parser.add_argument(
            "--gone",
            metavar="NAME",
            help="with --cancel or --delete-source: the journal NAME is lost for good; take back moves to it, or forget copies"
            " that were left in it, without it",
        )
        parser.add_argument("--yes", action="store_true", help="do it; without it, say what would be done")

    def work(self, options: dict[str, Any]) -> None:
        name: str | None = options["type"]
        _refuse_mixed(options)
        shards = _shards(options["shards"])
        try:
            if options["to"]:
                self._move(str(name), options["to"], shards, options)
            elif options["delete_source"]:
                self._delete(str(name), shards, options["gone"], yes=options["yes"])
            elif options["cancel"]:
                self._cancel(str(name), options["gone"])
            self._show(name)
        except CannotMove as error:
            raise refused(str(error)) from error
        except JournalsDown as error:
            raise CannotReach(f"{str(error).rstrip('.')}.", returncode=UNREACHABLE) from error
        except DatabaseError as error:
            raise database_trouble(get_settings().database, error) from error
        finally:
            connections[get_settings().database].close()

    # -- Moving ------------------------------------------------------------------------------------

    def _move(self, name: str, to: str, shards: Sequence[int] | None, options: dict[str, Any]) -> None:
        target = self._target(to)
        moving = [
            each
            for each in read_moves(name).lying
            if each.journal != target and (shards is None or each.shard in shards)
        ]
        if not moving:
            self.say(f"No shard of {name} has to be moved to {to}.")
        if not options["yes"]:
            sources = sorted({journal_name(each.journal) for each in moving})
            self.say(
                f"Would be moved to {to}: {counted(len(moving), 'shard')} of {name} from {', '.join(sources) or 'nowhere'}. Add"
                " --yes."
            )
            return
        progress = Progress(self.stderr, quiet=self.as_json)
        by, further = signed("sharding_move_journal"), self.further()

        def move(where: Conninfo) -> list[Step]:
            switches = []
            for step in move_shards(
                where, further, name, target, shards, by, at_once=options["at_once"], names=journal_name
            ):
                progress(_told(step))
                if step.name == "switched":
                    switches.append(step)
            return switches

        try:
            switches = self.on_database(move)
        finally:
            progress.done()
        pauses = sorted(each.seconds for each in switches)
        if pauses:
            self.say(
                f"{counted(sum(each.done for each in switches), 'shard')} of {name} moved to {to}. While they changed over, shards"
                f" had no home for {pauses[len(pauses) // 2]:.2f} s (the longest: {pauses[-1]:.2f} s)."
            )
        self._pauses = [round(each, 3) for each in pauses]

    _pauses: Sequence[float] = ()

    def _target(self, to: str) -> str:
        """Return the name of a journal that can be used."""
        own = get_settings().database
        facts = {each.alias: each for each in read_journals()}
        if to not in facts or facts[to].weight is None:
            raise refused(f"SHARDING['JOURNALS'] names no {to!r} (journals: {', '.join(facts)}).")
        if facts[to].trouble:
            raise CannotReach(
                f"The journal {to!r} cannot be read: {facts[to].trouble.rstrip('.')}.", returncode=UNREACHABLE
            )
        if why := why_unusable(facts[to], read_snapshot().cluster_id):
            raise refused(f"The journal {to!r} cannot be used: {why}")
        return CLUSTERS_OWN if to == own else to

    # -- What is left ------------------------------------------------------------------------------

    def _delete(self, name: str, shards: Sequence[int] | None, gone: str | None, *, yes: bool) -> None:
        left = [
            each
            for each in read_moves(name).moves
            if each.step == "moved" and (shards is None or each.shard in shards)
        ]
        sources = sorted({journal_name(each.source) for each in left})
        if not yes:
            self.say(
                f"Would be deleted: what {counted(len(left), 'shard')} of {name} left in {', '.join(sources) or 'no journal'}. Add"
                " --yes."
            )
            return
        further = self.further()
        progress = Progress(self.stderr, quiet=self.as_json)

        def delete(where: Conninfo) -> Erasure:
            if gone is not None:
                refuse_answering(gone, further, journal_name)
            needed = {each.source for each in left}
            settle_moves(where, further, name, gone=gone, names=journal_name, needed=needed)
            return delete_left_copies(
                where, further, name, shards, signed("sharding_move_journal"),
                lambda done: progress(f"{amount(done)} deleted"), gone=gone, names=journal_name,
            )  # fmt: skip

        try:
            done = self.on_database(delete)
        except NotDeleted as error:
            raise refused(str(error)) from error
        finally:
            progress.done()
        self.say(f"Deleted: {amount(done)}.")
        if forgotten := [each.shard for each in left if each.source == gone]:
            self.say(
                f"Forgotten: what shards {listed(forgotten)} of {name} left in {gone}. {_IF_IT_COMES_BACK}"
            )

    def _cancel(self, name: str, gone: str | None) -> None:
        further = self.further()
        copied = [
            each.shard for each in read_moves(name).moves if each.target == gone and each.step != "moved"
        ]
        by = signed("sharding_move_journal")
        taken_back = self.on_database(
            lambda where: cancel(where, further, name, by, gone=gone, names=journal_name)
        )
        self.say(
            f"Taken back: {counted(len(taken_back), 'shard')}, which lie where they were."
            if taken_back
            else "There is nothing to take back."
        )
        if copied:
            self.say(
                f"Not deleted: copies of shards {listed(copied)} of {name} in {gone}. {_IF_IT_COMES_BACK}"
            )

    # -- Showing -----------------------------------------------------------------------------------

    def _show(self, name: str | None) -> None:
        moves = read_moves(name).moves
        for each in moves:
            self.say(_line(each))
        if not moves and name is None:
            self.say("No shard moves, and none has left a copy behind.")
        self.result(
            moves=[
                {
                    "type": each.type, "shard": each.shard, "from": journal_name(each.source),
                    "to": journal_name(each.target), "step": each.step,
                }
                for each in moves
            ],
            pauses=list(self._pauses),
        )  # fmt: skip


def _refuse_mixed(options: dict[str, Any]) -> None:
    """Raise for options that do not belong together."""
    asked = [each for each in ("to", "delete_source", "cancel") if options[each]]
    name, gone = options["type"], options["gone"]
    if len(asked) > 1:
        raise refused("--to, --delete-source and --cancel exclude each other.")
    if options["shards"] and not (options["to"] or options["delete_source"]):
        raise refused("--shards belongs to --to or --delete-source.")
    if gone is not None and asked not in (["cancel"], ["delete_source"]):
        raise refused("--gone belongs to --cancel or --delete-source.")
    if gone == get_settings().database:
        raise refused(f"{gone!r} is the database of DATABASE: without it nothing can be done.")
    if options["at_once"] < 1:
        raise refused("--at-once must be 1 or more.")
    if asked and name is None:
        raise refused("Which type? Such as: manage.py sharding_move_journal shop.Cart --to journal_b")
    if name is not None and not asked:
        raise refused("Where to? Add --to with the name of a journal, --delete-source or --cancel.")


def _shards(given: str | None) -> list[int] | None:
    if given is None:
        return None
    found: set[int] = set()
    for part in given.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or (last and int(last) < int(first)):
            raise refused(f"--shards {given}: {part!r} is neither a number nor a range, such as 0-31,40.")
        found |= set(range(int(first), int(last or first) + 1))
    return sorted(found)


def _told(step: Step) -> str:
    if step.name == "switched":
        return f"{counted(step.done, 'shard')} changed over within {step.seconds:.2f} s"
    return {
        "begun": f"{counted(step.done, 'shard')} to be moved",
        "copied": f"{counted(step.done, 'range')} of rows copied",
        "caught up": f"{counted(step.done, 'note')} of rows written meanwhile copied",
        "compared": "the copy is the same as its source",
        "done": "done",
    }[step.name]


def _line(move: Moving) -> str:
    words = {
        "copying": "is being copied, or was",
        "closed": "is closed, to change over",
        "moved": "has left a copy",
    }
    return (
        f"{move.type} shard {move.shard}: {words[move.step]} (from {journal_name(move.source)} to"
        f" {journal_name(move.target)})"
    )

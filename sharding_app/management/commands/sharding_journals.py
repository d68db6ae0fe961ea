"""`manage.py sharding_journals`: the journal databases of the cluster, and where they lie."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.db import DatabaseError, connections

from sharding_app.adapters.django.database import journal_alias, secure_here
from sharding_app.adapters.postgres.deletion import living_hosts
from sharding_app.dashboard import words
from sharding_app.management.deletion_command import DatabaseCommand
from sharding_app.management.operator_command import refused, signed
from sharding_app.operations.connectivity import PROBLEMS, UNREACHABLE, CannotReach, database_trouble
from sharding_app.operations.console import counted
from sharding_app.operations.each_journal import JournalsDown
from sharding_app.operations.journals import (
    JournalFacts,
    StillUsed,
    adopt,
    epochs_here,
    epochs_there,
    read_journals,
    why_unusable,
)
from sharding_app.operations.snapshot import read_snapshot
from sharding_app.settings.load import get_settings


class Command(DatabaseCommand):
    help = (
        "Show the journal databases: place, weight, shards, events by the server's statistics, size, and whether each can be\n"
        "used. With --adopt store that a journal lies where its alias leads now: after its data was moved to another\n"
        "database or server. Refused while a node is alive, and for a database that is not this cluster's, or that is behind\n"
        "the cluster. Nodes that run keep to the place that they know, until they are started again.\n\n"
        "Examples:\n"
        "  manage.py sharding_journals                        show them\n"
        "  manage.py sharding_journals --json | jq '.journals[].usable'\n"
        "  manage.py sharding_journals --adopt journal_b      it was moved, and no node runs\n\n"
        "Exit codes: 0 done and all can be used, 1 refused or one cannot be used, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--adopt", metavar="NAME", help="store the place to which the alias of this journal leads now"
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="with --adopt: although nodes are alive that do not use it, or it lacks shards of the cluster",
        )
        parser.add_argument("--yes", action="store_true", help="with --adopt: do not ask")

    def work(self, options: dict[str, Any]) -> None:
        if options["force"] and not options["adopt"]:
            raise refused("--force belongs to --adopt.")
        settings = get_settings()
        try:
            cluster_id = read_snapshot().cluster_id
            journals = read_journals()
            if options["adopt"]:
                self._adopt(journals, cluster_id, options)
                journals = read_journals()
        except JournalsDown as error:
            raise CannotReach(f"{str(error).rstrip('.')}.", returncode=UNREACHABLE) from error
        except DatabaseError as error:
            raise database_trouble(settings.database, error) from error
        finally:
            connections[settings.database].close()
        self._show(journals, cluster_id)

    # -- Adopting ----------------------------------------------------------------------------------

    def _adopt(self, journals: list[JournalFacts], cluster_id: str, options: dict[str, Any]) -> None:
        name: str = options["adopt"]
        if name == get_settings().database:
            raise refused(
                f"{name!r} has the cluster's own journal, which lies where the cluster does: nothing is stored about its place."
            )
        facts = next((each for each in journals if each.name == name), None)
        if facts is None or facts.weight is None:
            raise refused(f"SHARDING['JOURNALS'] names no {name!r}.")
        if facts.trouble:
            raise CannotReach(
                f"The journal {name!r} cannot be read: {facts.trouble.rstrip('.')}.", returncode=UNREACHABLE
            )
        if why := why_unusable(facts, cluster_id, moved=True):
            raise refused(f"The database to which {name!r} leads cannot be adopted: {why}")
        if not facts.elsewhere:
            secure_here(journal_alias())  # a former call may have stored it
            self.say(f"{name} lies where the cluster knows it: nothing to adopt.")
            return
        self._refuse_behind(facts, force=options["force"])
        alive = self.on_database(lambda where: living_hosts(where, None))
        if alive and not options["force"]:
            raise refused(
                f"Nodes are running: {', '.join(alive)}. One that still writes to the former database would store there what "
                "is not in this one. Stop them first (manage.py sharding_shutdown --all). Add --force only if none of them "
                f"has used {name!r} since its data was copied."
            )
        self.sure(
            f"Adopt {facts.place} as the journal {name}? Its former place is {facts.known_place}, and what was written there "
            "since the copy is not in this one.",
            yes=options["yes"],
        )
        try:
            adopt(facts, signed("sharding_journals"))
        except StillUsed as error:
            raise refused(
                f"Nodes use {name!r} at its former place: {error}. What they store there is not in this database, so --force does"
                " not pass over them. Stop them first (manage.py sharding_shutdown --all)."
            ) from error
        self.say(f"Adopted: the journal {name} lies at {facts.place}. Start the nodes.")

    @staticmethod
    def _refuse_behind(facts: JournalFacts, *, force: bool) -> None:
        """Refuse a copy that is older than the cluster's rows, or none of this journal at all."""
        here, there = epochs_here(facts.name), epochs_there(facts.name)
        ahead = [each for each, epoch in there.items() if each in here and epoch > here[each]]
        if ahead:
            raise refused(
                f"{counted(len(ahead), 'shard')} of {facts.name!r} have later epochs there than in the cluster's own database, "
                "which is older: restore both to the same moment."
            )
        lacking = [each for each in here if each not in there]
        if lacking and not force:
            raise refused(
                f"{counted(len(lacking), 'shard')} of {facts.name!r} are not in that database: is it a whole copy? Shards that "
                "no home has taken yet are not there either: if you are sure, add --force."
            )

    # -- Showing -----------------------------------------------------------------------------------

    def _show(self, journals: list[JournalFacts], cluster_id: str) -> None:
        told = []
        down = bad = False
        for each in journals:
            why = each.trouble or why_unusable(each, cluster_id)
            down, bad = down or bool(each.trouble), bad or bool(why)
            weight = "not in the settings" if each.weight is None else f"weight {each.weight:g}"
            self.say(f"{each.alias}: {weight}, {counted(each.shards, 'shard')}")
            if each.place:
                self.say(
                    f"  at {each.place}, about {counted(each.events, 'event')}, {words.size(each.bytes)}"
                )
            if each.left:
                self.say(
                    f"  {counted(each.left, 'shard')} left a copy here, which is used for nothing: the events count it"
                )
            if each.coming:
                self.say(
                    f"  a copy of {counted(each.coming, 'shard')} is being made here: the events count it"
                )
            self.say(f"  cannot be used: {why}" if why else "  can be used")
            told.append(
                {
                    "name": each.alias, "own": not each.name, "weight": each.weight, "shards": each.shards,
                    "place": each.place or None, "known_place": each.known_place or None, "events": each.events,
                    "messages": each.messages, "bytes": each.bytes, "left": each.left, "coming": each.coming, "reachable": not each.trouble, "usable": not why,
                    "trouble": why,
                }
            )  # fmt: skip
        self.result(cluster=cluster_id, journals=told)
        if bad:
            sys.exit(UNREACHABLE if down else PROBLEMS)

"""Plans about one entity that is in memory: its home is asked."""

from __future__ import annotations

from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.admin.operator_plans.plan import Plan, Refused, type_row
from sharding_app.dashboard.history import read_history, shard_by_id
from sharding_app.dashboard.presenters.homes import homes
from sharding_app.operations.cache import Look
from sharding_app.operations.each_journal import JournalsDown
from sharding_app.operations.snapshot import TypeRow, read_shards
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.messages import OperatorRequest


def passivate(look: Look, given: QueryDict) -> Plan:
    found = _Found(look, given)
    return found.plan(
        "passivate",
        _("Passivate"),
        [
            _(
                "{} is asked to stop it after its current command, with its stop message if its type has one."
            ).format(found.where),
            _("Messages that arrive meanwhile wait, and start it again."),
        ],
    )


def restart(look: Look, given: QueryDict) -> Plan:
    found = _Found(look, given)
    return found.plan(
        "restart",
        _("Restart"),
        [
            _("Its object on {} is discarded, and recovered from the journal at once.").format(found.where),
            _("State that was not stored is lost. Waiting commands are handled afterwards."),
        ],
    )


class _Found:
    """The entity that is meant, and where it is. Raises Refused."""

    def __init__(self, look: Look, given: QueryDict) -> None:
        self.row: TypeRow = type_row(look, given)
        self.entity = given.get("entity", "")
        if not self.entity or "\x00" in self.entity:
            raise Refused(_("The id of the entity is missing."))
        journals = look.cluster.journal_names
        try:
            shard = read_history(self.row.number, self.row.config, self.entity, None, journals=journals).shard
        except JournalsDown:
            shard = shard_by_id(self.row.config, self.entity)
        found = {} if shard is None else read_shards(self.row.number, range(shard, shard + 1))
        shown = homes(look)
        home = found[shard].home if shard in found else None
        if shard is None or home not in shown:
            raise Refused(_("Its shard has no home now, so it is not in memory."))
        self.shard: ShardId = shard
        self.home = home
        self.where = shown[home]["name"]

    def plan(self, action: str, verb: str, consequences: list[str]) -> Plan:
        name = self.row.config.name
        query = QueryDict(mutable=True)
        query["id"] = self.entity
        return Plan(
            title=f"{verb} {name} {self.entity}",
            consequences=consequences,
            node=self.home,
            request=OperatorRequest(0, action, name, self.shard, self.entity),
            back=f"types/{self.row.number}/entity/?{query.urlencode()}",
        )

"""Who is in memory in a shard: its home is asked."""

from django.utils.translation import gettext as _

from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View
from sharding_app.errors import ShardingError
from sharding_app.operations.cache import ask_cluster
from sharding_app.protocol.messages import Entities, GetEntities
from sharding_app.runtime.node.process import Process

SHOWN = 100


def members_of(type_name: str, shard: int, cell: View, after: str) -> View:
    """The entities of a shard that are in memory, from an id on; or why that is not known."""
    home = cell["home"]
    if home is None or cell["state"] not in ("home", "handoff"):
        return {"rows": [], "trouble": "", "total": words.count(0), "next": ""}

    async def ask(process: Process) -> Entities | None:
        return await process.queries.entities(
            home["incarnation"], GetEntities(0, type_name, shard, after, SHOWN + 1)
        )

    try:
        answer = ask_cluster(ask)
    except ShardingError as error:
        return {"rows": [], "trouble": str(error), "total": words.NOTHING, "next": ""}
    if answer is None:
        return {"rows": [], "trouble": _("Its home does not answer."), "total": words.NOTHING, "next": ""}
    rows = [
        {
            "entity": each.entity,
            "seq": words.count(each.seq),
            "doing": each.doing,
            "waiting": words.count(each.waiting),
            "idle": words.duration(round(each.idle_seconds, 1)),
        }
        for each in answer.entities
    ]
    return {
        "rows": rows[:SHOWN],
        "trouble": "" if answer.epoch else _("The shard is not there yet, or no longer."),
        "total": words.count(answer.total),
        "next": rows[SHOWN - 1]["entity"] if len(rows) > SHOWN else "",
    }

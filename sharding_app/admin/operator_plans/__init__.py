"""What an operator can do: the permission that it needs, its name, and who makes its plan."""

from collections.abc import Callable
from typing import Any, NamedTuple

from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from sharding_app.admin.operator_plans import entities, messages, nodes, projections, shards, subjects
from sharding_app.admin.operator_plans.plan import Plan
from sharding_app.operations.cache import Look


class Action(NamedTuple):
    permission: str
    title: Any
    "Where no plan can be made: a plan has a title of its own."
    plan: Callable[[Look, QueryDict], Plan]
    "Raises Refused."
    private: bool = False
    "Its parameters are taken from a form alone: addresses land in logs and in histories."


ACTIONS: dict[str, Action] = {
    "rebalance": Action("sharding.rebalance_shards", _("Rebalance now"), shards.rebalance),
    "pause": Action("sharding.rebalance_shards", _("Pause rebalancing"), shards.pause),
    "resume": Action("sharding.rebalance_shards", _("Resume rebalancing"), shards.resume),
    "move": Action("sharding.move_shard", _("Move a shard"), shards.move),
    "drain": Action("sharding.drain_node", _("Drain a node"), nodes.drain),
    "undrain": Action("sharding.drain_node", _("End the drain of a node"), nodes.undrain),
    "shutdown": Action("sharding.shut_down_node", _("Shut a node down"), nodes.shutdown),
    "passivate": Action("sharding.stop_entity", _("Passivate an entity"), entities.passivate),
    "restart": Action("sharding.stop_entity", _("Restart an entity"), entities.restart),
    "run": Action("sharding.retry_message", _("Run messages and timers now"), messages.run),
    "retry": Action("sharding.retry_message", _("Retry messages and timers"), messages.retry),
    "discard": Action("sharding.discard_message", _("Discard messages and timers"), messages.discard),
    "projection-pause": Action("sharding.steer_projection", _("Pause a projection"), projections.pause),
    "projection-resume": Action("sharding.steer_projection", _("Resume a projection"), projections.resume),
    "projection-reset": Action("sharding.steer_projection", _("Reset a projection"), projections.reset),
    "projection-retry": Action("sharding.steer_projection", _("Retry an entity"), projections.retry),
    "projection-skip": Action("sharding.steer_projection", _("Skip an event"), projections.skip),
    "erase-subject": Action("sharding.erase_subject", _("Erase a person"), subjects.erase, private=True),
}

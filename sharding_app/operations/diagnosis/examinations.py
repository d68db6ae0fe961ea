"""All examinations, in the order of the report."""

from collections.abc import Callable, Container, Iterable, Sequence

from sharding_app.operations.diagnosis import (
    blocking_sessions,
    clocks,
    journal_databases,
    journals,
    layers,
    messages,
    nodes,
    personal,
    postgres,
    projections,
    settings,
    shards,
    tables,
    ways,
)
from sharding_app.operations.diagnosis.finding import RANK, Finding
from sharding_app.operations.diagnosis.look import Look

Examination = Callable[[Look], Iterable[Finding]]
_CLUSTER: tuple[Examination, ...] = (
    postgres.lineage, journal_databases.down, journal_databases.unread, nodes.present, nodes.alive, nodes.asked, nodes.versions, nodes.refused, nodes.kept_out_nodes,
    nodes.hosted, nodes.cannot_start, nodes.full, ways.by_layer, ways.layer_away, ways.out_of_reach,
    shards.examine, shards.closings, shards.rescales, shards.resizes, shards.strategies, messages.examine, projections.examine,
)  # fmt: skip
OF_THE_CLUSTER = (settings.unreachable, *_CLUSTER)
"""Those of the rows and the nodes' answers: status, health check and dashboard have no others."""
EXAMINATIONS: tuple[Examination, ...] = (
    settings.unreachable, settings.checked, settings.sealed, postgres.migrations, postgres.settings, postgres.rights,
    postgres.connections, journal_databases.usable, journal_databases.copies, journal_databases.deserted, journal_databases.connections, blocking_sessions.examine, tables.examine, layers.configured, layers.servers, layers.strangers, clocks.examine,
    nodes.refused_here, *_CLUSTER, journals.examine, personal.examine,
)  # fmt: skip


def judge(
    look: Look, silenced: Container[str] = (), examinations: Sequence[Examination] = EXAMINATIONS
) -> list[Finding]:
    """Return the findings, the worst first."""
    found = [each for examine in examinations for each in examine(look) if each.id not in silenced]
    return sorted(found, key=lambda each: RANK[each.severity])

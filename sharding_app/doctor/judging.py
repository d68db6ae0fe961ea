"""All examinations, in the order in which an operator reads them."""

from collections.abc import Callable, Container, Iterable

from sharding_app.doctor import clocks, journals, layers, nodes, server, settings, shards, vacuum
from sharding_app.doctor.finding import RANK, Finding
from sharding_app.doctor.look import Look

Examination = Callable[[Look], Iterable[Finding]]
EXAMINATIONS: tuple[Examination, ...] = (
    settings.unreachable, settings.checked, settings.sealed,
    server.migrations, server.settings, server.rights, server.lineage, server.connections, vacuum.examine,
    layers.configured, layers.servers, layers.strangers, clocks.examine,
    nodes.present, nodes.alive, nodes.versions, nodes.refused, nodes.kept_out_nodes, nodes.refused_here, nodes.hosted,
    nodes.cannot_start, nodes.full,
    shards.examine, shards.strategies, journals.examine,
)  # fmt: skip


def judge(look: Look, silenced: Container[str] = ()) -> list[Finding]:
    """Return what is wrong, the worst first."""
    found = [each for examination in EXAMINATIONS for each in examination(look) if each.id not in silenced]
    return sorted(found, key=lambda each: RANK[each.severity])

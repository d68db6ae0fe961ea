"""Regions as the rows of docs/conformance.md write them: A, B, C … by age, shards numbered through
A, then B, then C.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import count, islice
from string import ascii_uppercase

from sharding_app.protocol.allocation.strategy import ClusterView, Host, ShardAllocationStrategy

Regions = dict[str, list[int]]


def region_name(number: int) -> str:
    return ascii_uppercase[number] if number < 26 else f"R{number:03}"


def regions(*sizes: int) -> Regions:
    """Return [4, 4, 2] as A with 1 to 4, B with 5 to 8, C with 9 and 10."""
    numbers = count(1)
    return {region_name(place): list(islice(numbers, size)) for place, size in enumerate(sizes)}


def view(
    names: Collection[str],
    *,
    versions: Sequence[str] = (),
    leaving: Collection[str] = (),
    settled: bool = True,
    locations: Mapping[int, str] | None = None,
) -> ClusterView:
    """What a strategy is told of these regions' nodes; node A is called node-a."""
    each_version = list(versions) or ["1.0.0"] * len(names)
    hosts = {
        name: Host(name, version, name in leaving, f"node-{name.lower()}")
        for name, version in zip(names, each_version, strict=True)
    }
    return ClusterView(hosts, settled, locations)


MIXED_VERSIONS = ("1.0.0", "1.0.1", "1.0.0")


def moved(
    strategy: ShardAllocationStrategy, before: Regions, chosen: Collection[int], seen: ClusterView
) -> Regions:
    """Allocate the chosen shards anew, in sorted order."""
    after = {name: [each for each in shards if each not in chosen] for name, shards in before.items()}
    for shard in sorted(chosen):
        after[strategy.allocate(None, shard, after, seen)].append(shard)
    return {name: sorted(shards) for name, shards in after.items()}


def sizes(of: Regions) -> tuple[int, ...]:
    return tuple(len(shards) for shards in of.values())

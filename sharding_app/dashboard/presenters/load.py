"""Where the load is: the slowest commands, the hottest shards, and the entities that write most.

Each node keeps bounded lists, made of samples; here those of all nodes are put together.
"""

from datetime import timedelta

from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.operations.cache import Look

SHOWN = 20


def slowest(look: Look) -> list[View]:
    """Return the slowest commands of the last minutes, the slowest first."""
    shown, numbers = homes(look), _numbers(look)
    found = [
        (each, of.type, node)
        for node, answer in look.stats.items()
        for of in answer.types
        for each in of.slowest
    ]
    found.sort(key=lambda item: -item[0].seconds)
    return [
        {
            "type": name,
            "number": numbers.get(name),
            "entity": each.entity,
            "command": each.command,
            "seconds": words.duration(each.seconds),
            "ago": words.span(timedelta(seconds=each.age_seconds)),
            "home": shown.get(node),
        }
        for each, name, node in found[:SHOWN]
    ]


def hot_shards(look: Look) -> list[View]:
    """Return the shards with the most commands lately, the hottest first."""
    shown, numbers = homes(look), _numbers(look)
    found = [
        (count, of.type, shard, node)
        for node, answer in look.stats.items()
        for of in answer.types
        for shard, count in of.hot_shards
    ]
    found.sort(key=lambda item: -item[0])
    most = found[0][0] if found else 1
    return [
        {
            "type": name,
            "number": numbers.get(name),
            "shard": shard,
            "home": shown.get(node),
            "width": round(100 * count / most, 1),
        }
        for count, name, shard, node in found[:SHOWN]
    ]


def writers(look: Look) -> list[View]:
    """Return the entities that store the most events lately, the busiest first."""
    shown, numbers = homes(look), _numbers(look)
    found = [(each, node) for node, answer in look.stats.items() for each in answer.writers]
    found.sort(key=lambda item: -item[0][3])
    most = found[0][0][3] if found else 1
    return [
        {
            "type": name,
            "number": numbers.get(name),
            "entity": entity,
            "shard": shard,
            "home": shown.get(node),
            "width": round(100 * count / most, 1),
        }
        for (name, entity, shard, count), node in found[:SHOWN]
    ]


def _numbers(look: Look) -> dict[str, int]:
    return {each.config.name: each.number for each in look.cluster.types}

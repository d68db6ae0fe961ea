"""Entity types that exist only inside a run, although their classes are declared at import."""

from sharding_app import Entity
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.registry import registry


def withdrawn(cls: type[Entity]) -> EntityType:
    """Take a type out of the registry again, and return it."""
    found = cls._sharding_type
    if found is None:
        raise TypeError(f"{cls.__name__} is no entity type")
    registry.discard(found)
    return found

"""Orders to a projection within the transaction of a test: none is another process's."""

from collections.abc import Iterator

import pytest
from django.db import connection

from sharding_app.adapters.django import projections as control
from sharding_app.adapters.django.projecting import register
from sharding_app.entities.happened import Happened
from sharding_app.entities.projections import Projection, on, projections
from tests.integration.adapters.django.projected import Account, Paid

pytestmark = pytest.mark.django_db
NAME = "projected.Elsewhere"


@pytest.fixture
def cleared() -> Iterator[list[str]]:
    """The calls of `clear()` of a projection whose rows are elsewhere."""
    found: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES ('projected.Account', 'event sourced', 1, '', 'crc32-1', '', 'postgres')"
        )
    with projections.isolated():

        class Elsewhere(Projection, name=NAME):
            source = Account

            @on(Paid)
            async def paid(self, happened: Happened[Paid]) -> None:
                """Leave it to others."""

            async def clear(self) -> None:
                found.append("cleared")

        declared = Elsewhere._sharding_projection
        assert declared is not None
        register("default", declared)
        yield found


def test_each_follows_the_other(cleared: list[str]) -> None:
    control.pause(NAME, 1)
    control.reset(NAME, 1)
    assert cleared == ["cleared"]
    assert control.status(NAME)[0].paused, "as before the reset"
    control.resume(NAME, 1)
    control.reset(NAME, 1)
    assert not control.status(NAME)[0].paused
    control.pause(NAME, 1)
    control.remove(NAME, 1)
    assert control.status(NAME) == []

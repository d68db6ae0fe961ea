"""Entities with very long histories are found by a sample that costs the same however many events
there are.
"""

import msgspec
import pytest
from django.db import connection

from sharding_app.entities.entity_type import EntityType
from sharding_app.operations.diagnosis import read_journal as module
from sharding_app.operations.diagnosis.read_journal import read_journal
from tests.support.given import CART
from tests.unit.runtime.one_of_each import Cart

FILL = """
INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)
SELECT 7, %s, number, 0, 1, 'Added', 1, '{"sku": "a", "quantity": 1}' FROM generate_series(1, %s) AS number
"""


@pytest.mark.usefixtures("transactional_db")
def test_the_longest_are_named_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG_EVENTS", 1000)
    known = Cart._sharding_type
    assert isinstance(known, EntityType)
    config = msgspec.structs.replace(CART, name=known.name)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (7, 0, 1, 'a', 'home')"
        )
        for number in range(300):
            cursor.execute(FILL, [f"e{number:03}", 3])
            if number == 150:
                cursor.execute(FILL, ["e150-long", 3000])
        cursor.execute(FILL, ["e000-snapped", 1200])
        cursor.execute(
            "INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)"
            " VALUES (7, 'e000-snapped', 1100, 0, 1, '{}')"
        )
    found = read_journal("default", 7, config, known, seed=1)
    assert found.long == (("e150-long", 3000),)

"""A smaller sample of random lives on PostgreSQL: the same promises, with the real fence, COPY and
locks.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sharding_app.embedded import Servers
from tests.integration.lives.on_postgres import LOG, PostgresLife
from tests.simulation.lives.ledgers import KINDS, PARTS, QUERIES, Kind
from tests.support.scratch import empty_tables, make_tables, scratch_database

operations = st.sampled_from([each for each in PARTS if each != "with_row"] + [*QUERIES])
entities = st.sampled_from(["a", "b"])
Step = tuple[Any, ...]


@pytest.fixture(scope="module")
def database(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        with psycopg.connect(**params, autocommit=True) as connection:
            connection.execute(LOG)
        yield params


def steps(draw: st.DrawFn) -> list[Step]:
    """Commands mostly, and each kind of trouble at least once, in any order."""
    trouble: list[Step] = [
        ("lose node", draw(st.integers(0, 1)), "kill"), ("lose node", draw(st.integers(0, 1)), "stop"),
        ("add node",), ("add node",), ("move", draw(st.integers(0, 1)), draw(entities), draw(st.integers(0, 5))),
        ("append", "never"), ("append", "answer lost"), ("refuse", draw(st.integers(0, 1)), draw(entities)),
        ("end connections",), ("forget",), ("pause", 1.2), ("pause", 1.2), ("retry",), ("retry",), ("retry",),
    ]  # fmt: skip
    calls: list[Step] = [
        ("call", draw(st.integers(0, 1)), draw(entities), draw(st.lists(operations, min_size=1, max_size=5)))
        for _ in range(25)
    ]
    return draw(st.permutations(trouble + calls))


async def take(life: PostgresLife, kinds: list[Kind], step: Step) -> None:
    match step:
        case ("call", which, entity, wanted):
            for operation in wanted:
                life.call(kinds[which], entity, operation, named=len(wanted) % 2 == 1)
            await life.pass_time(0.01)
        case ("retry",):
            for kind in kinds:
                for each in life.repeatable(kind, "a")[-3:]:
                    life.again(kind, "a", each)
        case ("append", plan):
            life.trouble.next("append", plan)
        case ("refuse", which, entity):
            life.cluster.fail_next_write(kinds[which], entity)
        case ("forget",):
            life.cluster.forget()
        case other:
            await meet(life, kinds, other)


async def meet(life: PostgresLife, kinds: list[Kind], step: Step) -> None:
    match step:
        case ("lose node", which, how):
            await life.lose_node(which, how)
        case ("add node",):
            await life.add_node()
        case ("move", which, entity, target):
            await life.move(kinds[which], entity, target)
        case ("end connections",):
            await life.end_connections()
        case ("pause", seconds):
            await life.pass_time(seconds)
        case other:
            raise AssertionError(other)


@settings(
    max_examples=2, deadline=None, derandomize=True, print_blob=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(kinds=st.permutations(KINDS), history=st.composite(steps)())
def test_a_random_life_gives_what_its_journal_gives(
    database: dict[str, Any], kinds: list[Kind], history: list[Step]
) -> None:
    empty_tables(database)
    with psycopg.connect(**database, autocommit=True) as connection:
        connection.execute("TRUNCATE log")
    life = PostgresLife(database)
    try:
        life.run(life.begin())
        for step in history:
            life.run(take(life, kinds[:2], step))
        life.run(life.settle())
        life.run(life.look())
        life.run(life.recover())
        life.run(life.lose_node(0, "kill"))
        life.run(life.look())
        life.run(life.settle())
    finally:
        life.run(life.end())
        life.close()

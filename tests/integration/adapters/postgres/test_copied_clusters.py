"""What the pages tell an operator to do with copies of a cluster's databases."""

from typing import Any

import psycopg

from sharding_app.adapters.postgres.sql import QUERIES
from tests.docs.blocks import blocks
from tests.support.live import ROOT


def statement(page: str) -> bytes:
    """The one statement of a page about the row of the cluster."""
    [found] = [
        each.text
        for each in blocks(ROOT / "docs" / page)
        if each.language == "sql" and "sharding_cluster" in each.text
    ]
    return found.encode()


def cluster_id(connection: psycopg.Connection) -> Any:
    row = connection.execute(QUERIES["cluster_id"]).fetchone()
    assert row is not None
    return row[0]


def test_a_copy_of_the_files_gets_an_id_of_its_own(params: dict[str, Any]) -> None:
    with psycopg.connect(**params, autocommit=True) as connection:
        former = cluster_id(connection)
        assert cluster_id(connection) == former, "a standby that takes over is the same cluster"
        connection.execute(statement("backup.md"))
        own = cluster_id(connection)
        assert own != former
        assert cluster_id(connection) == own


def test_a_journal_goes_with_a_restored_cluster(params: dict[str, Any]) -> None:
    with psycopg.connect(**params, autocommit=True) as connection:
        connection.execute(QUERIES["own"], {"cluster": "former"})
        assert owner(connection) == ("former", True)
        connection.execute(statement("journals.md"))
        assert owner(connection) == ("the new id", True)


def owner(connection: psycopg.Connection) -> Any:
    row = connection.execute(QUERIES["own"], {"cluster": "the new id"}).fetchone()
    assert row is not None
    return row[:2]

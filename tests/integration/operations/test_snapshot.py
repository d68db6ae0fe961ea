"""The rows of the cluster, as the site and the commands read them."""

from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from sharding_app.operations.snapshot import read_snapshot


@pytest.mark.usefixtures("rows")
def test_a_shared_lock_and_the_lock_of_a_stranger_are_no_sign_of_life() -> None:
    """The cluster itself counts neither: the pages show a node as its coordinator sees it."""
    ours, name = connection.get_connection_params(), f"stranger_{uuid4().hex[:12]}"
    with psycopg.connect(**ours, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(1), pg_advisory_lock_shared(-1), pg_advisory_lock(2)")
        other.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
        try:
            with psycopg.connect(**{**ours, "user": name, "password": "secret"}) as stranger:
                stranger.execute("SELECT pg_advisory_lock(-2)")
                assert [each.locks for each in read_snapshot().members] == [1, 1, 0]
        finally:
            other.execute(f"DROP ROLE {name}".encode())

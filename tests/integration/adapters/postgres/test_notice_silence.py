"""A connection of Django's to a server that has gone without a word ends in seconds, not hours."""

import socket
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.connection import notice_silence

TIMES = "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"


def times(connection: psycopg.Connection[Any]) -> list[int]:
    borrowed = socket.socket(fileno=connection.fileno())
    try:
        assert borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return [borrowed.getsockopt(socket.IPPROTO_TCP, getattr(socket, each)) for each in TIMES]
    finally:
        borrowed.detach()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, [5, 2, 3, 11_000]),
        ({"keepalives": 0}, [5, 2, 3, 11_000]),
        ({"keepalives_idle": 2, "tcp_user_timeout": 4_000}, [2, 2, 3, 4_000]),
        ({"keepalives_idle": 600, "tcp_user_timeout": 60_000}, [5, 2, 3, 11_000]),
    ],
)
def test_the_kernel_looks_as_often_as_at_our_own(
    params: dict[str, Any], given: dict[str, Any], found: list[int]
) -> None:
    with psycopg.connect(**params, **given) as connection:
        notice_silence(connection)
        assert times(connection) == found
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_that_has_ended_is_left_alone(params: dict[str, Any]) -> None:
    with psycopg.connect(**params) as connection:
        connection.close()
        notice_silence(connection)

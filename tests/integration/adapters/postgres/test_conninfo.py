"""A Django database alias as psycopg's parameters."""

from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sharding_app.adapters.postgres.conninfo import from_django_settings


def test_what_an_alias_says_is_kept() -> None:
    found = from_django_settings(
        {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "shop",
            "USER": "me",
            "PASSWORD": "it's \\secret",
            "HOST": "db.example",
            "PORT": 5433,
            "CONN_MAX_AGE": 60,
            "OPTIONS": {
                "sslmode": "verify-full",
                "sslrootcert": "/ca.pem",
                "passfile": "/pass",
                "connect_timeout": 3,
            },
        }
    )
    assert found == {
        "dbname": "shop",
        "user": "me",
        "password": "it's \\secret",
        "host": "db.example",
        "port": "5433",
        "sslmode": "verify-full",
        "sslrootcert": "/ca.pem",
        "passfile": "/pass",
        "connect_timeout": 3,
        "client_encoding": "UTF8",
    }
    assert "verify-full" in make_conninfo(**found)


def test_what_is_djangos_own_is_left_out() -> None:
    options = {
        "pool": {"min_size": 2},
        "isolation_level": psycopg.IsolationLevel.SERIALIZABLE,
        "server_side_binding": True,
        "prepare_threshold": None,
        "cursor_factory": object,
        "sslmode": None,
    }
    assert from_django_settings({"NAME": "shop", "OPTIONS": options}) == {
        "dbname": "shop",
        "client_encoding": "UTF8",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"dbname": "postgres"}),
        ({"NAME": ""}, {"dbname": "postgres"}),
        ({"OPTIONS": {"service": "shop"}}, {"service": "shop"}),
        ({"OPTIONS": {"service": "shop"}, "NAME": "other"}, {"service": "shop", "dbname": "other"}),
        ({"NAME": "a", "HOST": "", "PORT": "", "USER": "", "PASSWORD": ""}, {"dbname": "a"}),
        ({"NAME": "a", "HOST": "one,two", "PORT": "1,2"}, {"dbname": "a", "host": "one,two", "port": "1,2"}),
    ],
)
def test_what_an_alias_does_not_say_is_libpqs_to_find(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert from_django_settings(given) == {**expected, "client_encoding": "UTF8"}


def test_the_settings_are_not_changed() -> None:
    given: dict[str, Any] = {"NAME": "a", "OPTIONS": {"pool": True}}
    from_django_settings(given)
    assert given == {"NAME": "a", "OPTIONS": {"pool": True}}


def test_a_role_is_assumed_from_the_start(params: dict[str, Any]) -> None:
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute('CREATE ROLE "the shop"')
        try:
            found = from_django_settings(
                {
                    "NAME": params["dbname"],
                    "USER": params["user"],
                    "PASSWORD": params.get("password"),
                    "HOST": params["host"],
                    "PORT": params["port"],
                    "OPTIONS": {"assume_role": "the shop", "options": "-c work_mem=5MB"},
                }
            )
            with psycopg.connect(**found) as connection:
                row = connection.execute("SELECT current_user, current_setting('work_mem')").fetchone()
            assert row == ("the shop", "5MB")
        finally:
            admin.execute('DROP ROLE "the shop"')

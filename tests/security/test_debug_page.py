"""The demo's page about an error, and `diffsettings`, hold no password and no key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from django.utils.html import escape

from project.settings.base import DATA_FOLDER
from project.settings.debug_page import without_secrets
from sharding_app.embedded import DataFolder, Secret, Servers

ROOT = Path(__file__).resolve().parents[2]
KEY = "a-key-of-the-cluster-with-<'\"&-in-it"


def connected(conninfo: str) -> None:
    raise RuntimeError(f"cannot connect with {conninfo}")


def view(request: HttpRequest) -> HttpResponse:
    """Fail as a driver does: with passwords in local variables and in the message."""
    database = dict(settings.DATABASES["default"])
    parameters = {"password": str(database["PASSWORD"])}
    connected(f"postgresql://u:{parameters['password']}@h key={settings.SHARDING['KEYS'][0]}")
    return HttpResponse()


async def async_view(request: HttpRequest) -> HttpResponse:
    return view(request)


urlpatterns = [path("sync/", view), path("async/", async_view)]


def passwords() -> list[str]:
    layers = [layer["CONFIG"]["hosts"][0] for layer in settings.CHANNEL_LAYERS.values()]
    found = [str(settings.DATABASES["default"]["PASSWORD"]), *(str(host["password"]) for host in layers)]
    return [*found, str(settings.SECRET_KEY), KEY]


@pytest.mark.parametrize("accept", ["text/html", "text/plain"])
@override_settings(DEBUG=True, ROOT_URLCONF=__name__)
def test_the_page_about_an_error_holds_no_secret(servers: Servers, accept: str) -> None:
    with override_settings(SHARDING={**settings.SHARDING, "KEYS": [KEY]}):
        page = Client(raise_request_exception=False).get("/sync/", headers={"accept": accept})
        assert page.status_code == 500
        text = page.content.decode()
        assert "cannot connect with" in text
        for secret in passwords():
            for written in (secret, quote(secret, safe=""), escape(secret)):
                assert written not in text


@pytest.mark.asyncio
@override_settings(DEBUG=True, ROOT_URLCONF=__name__)
async def test_an_async_view_has_the_same_page(servers: Servers) -> None:
    with override_settings(SHARDING={**settings.SHARDING, "KEYS": [KEY]}):
        page = await AsyncClient(raise_request_exception=False).get("/async/")
        assert page.status_code == 500
        assert not [each for each in passwords() if each in page.content.decode()]


def test_diffsettings_prints_no_secret(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_URL")}
    command = [sys.executable, "manage.py", "diffsettings", "--all"]
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    access = DataFolder(DATA_FOLDER).access()
    assert "DATABASES" in answer.stdout
    for secret in (
        access.postgres_password, access.redis_password, access.secret_key, access.postgres_admin_password,
    ):  # fmt: skip
        assert not secret or secret not in answer.stdout


def test_short_passwords_do_not_tear_words_apart() -> None:
    with override_settings(SECRET_KEY="a"):
        assert without_secrets("an apple") == "an apple"


@pytest.mark.django_db
@pytest.mark.parametrize("where", ["/carts/", "/sync/carts/"])
@pytest.mark.parametrize(
    ("customer", "order"),
    [
        ("alice", {"sku": "book", "quantity": "--5"}),
        ("alice", {"sku": "book", "quantity": "9" * 5000}),
        ("alice", {"sku": "book", "quantity": "99999999999999999999"}),
        ("alice", {"sku": "book", "quantity": "١"}),
        ("alice", {"sku": "book", "quantity": ""}),
        ("alice", {"sku": "x" * 5000}),
        ("alice", {"sku": "a\x00b"}),
        ("alice", {}),
        ("a" * 600, {"sku": "book"}),
        ("a\x00b", {"sku": "book"}),
    ],
)
def test_the_shop_refuses_nonsense(where: str, customer: str, order: dict[str, Any]) -> None:
    page = Client().post(f"{where}{quote(customer)}/", order)
    assert page.status_code == 400
    assert page.json()["error"]


def test_a_secret_is_whole_for_those_who_use_it() -> None:
    secret = Secret("open sesame")
    assert f"{secret}" == str(secret) == "open sesame"
    assert "open" not in repr([secret])

"""The shop where it is more than a demo: a customer logs in, and sees no cart but his own."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import reload
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import clear_url_caches
from pytest_django.fixtures import Settings

from project import urls
from project.shop import urls as shop_urls
from project.shop import views

CARTS = ("/carts/alice/", "/sync/carts/alice/")


@pytest.fixture
def closed_shop(settings: Settings) -> Iterator[None]:
    """Read the views again: whether they take calls without a token is decided when they are
    read.
    """

    def again() -> None:
        for module in (views, shop_urls, urls):
            reload(module)
        clear_url_caches()

    settings.SHOP_NEEDS_LOGIN = True
    again()
    yield
    settings.SHOP_NEEDS_LOGIN = False
    again()


@pytest.mark.django_db
@pytest.mark.usefixtures("closed_shop")
@pytest.mark.parametrize("cart", CARTS)
def test_a_customer_has_to_be_logged_in_and_have_a_token(cart: str) -> None:
    order = {"sku": "book", "quantity": "2"}
    assert Client().get(cart).status_code == 401
    for name, status in {"alice": 200, "bob": 403}.items():
        user = User.objects.create_user(name, password="x")
        client = Client(enforce_csrf_checks=True)
        client.force_login(user)
        assert client.get(cart).status_code == status
        assert client.post(cart, order).status_code == 403, "without a token"


@pytest.mark.django_db
@pytest.mark.parametrize("cart", CARTS)
def test_the_demo_is_open(cart: str) -> None:
    client: Any = Client(enforce_csrf_checks=True)
    assert client.post(cart, {"sku": "book", "quantity": "2"}).json() == {"customer": "alice", "count": 2}

"""Entities that tests declare are forgotten after each test."""

from collections.abc import Iterator

import pytest

from sharding_app.entities.registry import messages, registry


@pytest.fixture(autouse=True)
def forget_declarations() -> Iterator[None]:
    with registry.isolated(), messages.isolated():
        yield

"""No test of this tier starts a server."""

import pytest


@pytest.fixture(scope="session")
def servers() -> None:
    """Refuse: a test that needs a server belongs to another tier."""
    pytest.fail("A test in tests/unit asks for a server: its place is tests/integration.")


@pytest.fixture
def own_postgres(servers: None) -> None:
    """Refuse, as `servers` does."""


@pytest.fixture
def own_redis(servers: None) -> None:
    """Refuse, as `servers` does."""


@pytest.fixture(scope="session")
def live_servers(servers: None) -> None:
    """Refuse, as `servers` does."""

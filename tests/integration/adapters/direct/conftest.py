"""What the tests of direct connections share.

On a busy machine a connection may take longer to make than a frame waits for it, and than a
handshake may: here they wait.
"""

import pytest

from sharding_app.adapters.direct import connection, transport
from tests.integration.adapters.direct.ends import TCP, UNIX
from tests.support.slack import SLACK


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "DIAL_WAIT_SECONDS", 5.0 * SLACK)
    monkeypatch.setattr(transport, "DIAL_SECONDS", 2.0 * SLACK)
    monkeypatch.setattr(transport, "AT_A_TIME_SECONDS", 4.0 * SLACK)
    for module in (connection, transport):
        monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 2.0 * SLACK)


@pytest.fixture(params=["unix", "tcp"])
def listen(request: pytest.FixtureRequest) -> transport.Listen:
    return UNIX if request.param == "unix" else TCP

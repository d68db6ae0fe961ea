"""What the tests of direct connections share.

On a busy machine a connection may take longer to make than a frame waits for it: here the frames
wait.
"""

import pytest

from sharding_app.adapters.direct import transport
from tests.integration.adapters.direct.ends import TCP, UNIX


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "DIAL_WAIT_SECONDS", 5.0)


@pytest.fixture(params=["unix", "tcp"])
def listen(request: pytest.FixtureRequest) -> transport.Listen:
    return UNIX if request.param == "unix" else TCP

"""On a busy machine a connection may take longer to make than a frame waits for it: here the frames
wait.
"""

import pytest

from sharding_app.adapters.direct import transport


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "DIAL_WAIT_SECONDS", 5.0)

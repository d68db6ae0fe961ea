"""Nodes in the process of a test: a busy machine holds them up for seconds, and callers wait."""

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import override_settings

from sharding_app.testing import real
from tests.support.slack import SLACK


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    patient = {**settings.SHARDING, "ASK_TIMEOUT_SECONDS": 5.0 * SLACK}
    with override_settings(SHARDING=patient), pytest.MonkeyPatch.context() as patched:
        patched.setattr(real, "UP_SECONDS", 20.0 * SLACK)
        yield

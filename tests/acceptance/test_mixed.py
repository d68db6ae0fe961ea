"""A short sample of the mixed runs, with a new seed each time. `python -m tests.acceptance` makes long ones."""

import pytest

from tests.acceptance.__main__ import SETTINGS
from tests.acceptance.conftest import NewScenario
from tests.acceptance.mixed import Mixed

pytestmark = pytest.mark.acceptance


def test_mixed_faults(scenario: NewScenario) -> None:
    mixed = Mixed(scenario(SETTINGS), print)
    report = mixed.round(stages=3)
    assert report.events > 1000

"""The demo site, a little app of the tests', and a policy that lets no inline code and nothing
foreign run.
"""

from __future__ import annotations

import json
import os

from project.settings import *  # noqa: F403
from project.settings import base
from tests.support.slack import PATIENT

INSTALLED_APPS = [*base.INSTALLED_APPS, "project.auctions", "tests.browser.app"]
AUCTIONS_OPEN = 0
ROOT_URLCONF = "tests.browser.app.urls"
MIDDLEWARE = ["tests.browser.policy.strict", *base.MIDDLEWARE]
SHARDING = {**PATIENT, **json.loads(os.environ.get("TEST_SHARDING", "{}"))}

"""The demo site with one more app, for processes under test."""

from __future__ import annotations

import json
import os

from project.settings import *  # noqa: F403
from project.settings import base

INSTALLED_APPS = [*base.INSTALLED_APPS, *os.environ.get("TEST_APPS", "tests.badinput.app").split()]
SHARDING = json.loads(os.environ.get("TEST_SHARDING", "{}"))

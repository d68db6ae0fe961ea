"""The demo site with one more app, for processes under test."""

from __future__ import annotations

import json
import os
import sys

from project.settings import *  # noqa: F403
from project.settings import base

# Only `runserver` needs the app of Daphne, and Twisted is a quarter of what it takes to start a process.
without = set() if "runserver" in sys.argv else {"daphne"}
INSTALLED_APPS = [
    *(each for each in base.INSTALLED_APPS if each not in without),
    *os.environ.get("TEST_APPS", "tests.badinput.app").split(),
]
SHARDING = json.loads(os.environ.get("TEST_SHARDING", "{}"))
DATABASES["default"]["CONN_MAX_AGE"] = int(os.environ.get("CONN_MAX_AGE", "0"))  # noqa: F405

"""The demo site with one more app, for processes under test."""

from __future__ import annotations

import json
import os
import sys

from project.settings import *  # noqa: F403
from project.settings import base
from tests.support.slack import PATIENT

# Only `runserver` needs the app of Daphne, and only a site the admin's pages: both take long to
# import, and each of many processes does.
without = set() if "runserver" in sys.argv else {"daphne"}
instead = (
    {}
    if {"runserver", "runcluster"} & set(sys.argv)
    else {"django.contrib.admin": "django.contrib.admin.apps.SimpleAdminConfig"}
)
INSTALLED_APPS = [
    *(instead.get(each, each) for each in base.INSTALLED_APPS if each not in without),
    *os.environ.get("TEST_APPS", "tests.badinput.app").split(),
]
SHARDING = {**PATIENT, **json.loads(os.environ.get("TEST_SHARDING", "{}"))}
DATABASES["default"]["CONN_MAX_AGE"] = int(os.environ.get("CONN_MAX_AGE", "0"))  # noqa: F405

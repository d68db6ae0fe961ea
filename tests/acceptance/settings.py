"""Settings of the processes under test. Servers and SHARDING come from the environment that the
harness gives them.
"""

from __future__ import annotations

import json
import os

from project.settings import base
from project.settings.base import *  # noqa: F403
from project.settings.urls import database

DEBUG = False
SECRET_KEY = "only for tests on the loopback"
ALLOWED_HOSTS: list[str] = []
# Nothing is served here: Twisted and the admin's pages are much of what it takes to start a
# process.
instead = {"django.contrib.admin": "django.contrib.admin.apps.SimpleAdminConfig"}
INSTALLED_APPS = [
    *(instead.get(each, each) for each in base.INSTALLED_APPS if each != "daphne"),
    "tests.acceptance.app",
    *filter(None, os.environ.get("ACCEPTANCE_APPS", "").split(",")),
]
if ports := os.environ.get("ACCEPTANCE_PORTS"):
    # A primary and its standby, as libpq is told of several servers: the one that takes writes is
    # found.
    DATABASES = {"default": {**base.DATABASES["default"], "HOST": "127.0.0.1,127.0.0.1", "PORT": ports}}
for alias, url in json.loads(os.environ.get("ACCEPTANCE_JOURNAL_URLS") or "{}").items():
    DATABASES = {**DATABASES, alias: database(url)}
SHARDING = json.loads(os.environ.get("ACCEPTANCE_SHARDING", "{}"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"sharding": {"handlers": ["stderr"], "level": "INFO", "propagate": False}},
}

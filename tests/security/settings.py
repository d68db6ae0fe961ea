"""The processes under test as in production: DEBUG off. Their logs tell all that there is, so that
all can be searched.
"""

from __future__ import annotations

from tests.badinput.settings import *  # noqa: F403

DEBUG = False
ALLOWED_HOSTS = ["testserver"]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"sharding": {"handlers": ["stderr"], "level": "DEBUG", "propagate": False}},
}

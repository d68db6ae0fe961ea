"""The demo site with purses, and with the databases `default` and `journal_b`."""

from __future__ import annotations

import os

from project.settings.urls import database
from tests.badinput.settings import *  # noqa: F403

INSTALLED_APPS = [  # with the admin's pages
    "django.contrib.admin" if each.startswith("django.contrib.admin.") else each
    for each in INSTALLED_APPS  # noqa: F405
]
ALLOWED_HOSTS = ["*"]
DATABASES["journal_b"] = database(os.environ["JOURNAL_B_URL"])  # noqa: F405
SHARDING = {
    **SHARDING,  # noqa: F405
    "JOURNALS": {"default": 1, "journal_b": int(os.environ.get("WEIGHT_OF_B", "1"))},
    "PERSONAL_KEYS": ["of the tests, and of no other cluster on earth"],
}
if direct := os.environ.get("LIFELINE_DATABASE"):
    DATABASES[direct] = dict(DATABASES["default"])  # noqa: F405
    SHARDING["LIFELINE_DATABASE"] = direct
if window := int(os.environ.get("LINK_WINDOW", "0")):
    parts = dict.fromkeys(("LINK_MAX_FRAME_BYTES", "LINK_MAX_MESSAGE_BYTES"), window // 4)
    SHARDING |= {"LINK_WINDOW_BYTES": window, **parts}
if os.environ.get("WITHOUT_JOURNALS"):
    del SHARDING["JOURNALS"]

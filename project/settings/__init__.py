"""The demo site on one machine: debug pages, loopback only. `project.settings.production` is for
anything else.
"""

from __future__ import annotations

import os
import secrets

from project.settings.base import *
from sharding_app.embedded import DataFolder, Secret

DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", "testserver"]
SECRET_KEY = Secret(
    os.environ.get("SECRET_KEY")
    or (DataFolder(DATA_FOLDER).access().secret_key if EMBEDDED else secrets.token_urlsafe(48))
)
# The demo makes itself an administrator with a random password, in its own database and never in
# yours.
DEMO_ADMIN = EMBEDDED

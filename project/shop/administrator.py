"""The demo's administrator: a random password for each data folder, kept in a file of mode 0600 and
printed nowhere.
"""

from __future__ import annotations

import secrets
from typing import Any

from django.apps import apps as installed
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connections

from sharding_app.embedded import DataFolder

NAME = "admin"
FILE = "admin-password.json"


def after_migrate(using: str, **_ignored: Any) -> None:
    """Make the administrator in the demo's own database, once `auth` has its tables; never in a
    test's or yours.
    """
    name = str(connections[using].settings_dict["NAME"])
    if not getattr(settings, "DEMO_ADMIN", False) or using != "default" or name.startswith("test_"):
        return
    users = get_user_model()._default_manager
    if (
        not installed.is_installed("django.contrib.auth")
        or users.using(using).filter(is_superuser=True).exists()
    ):
        return
    password = secrets.token_urlsafe(12)
    users.db_manager(using).create_superuser(username=NAME, email=None, password=password)
    folder = DataFolder(settings.DATA_FOLDER)
    file = folder.path / FILE
    folder.write(file, {"user": NAME, "password": password})
    print(f"The demo's administrator is '{NAME}'; the password is in {file}.")

"""A Django project of a stranger's own, in a temporary folder, that uses the app as an installed
package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.live import ROOT, Live, Program
from tests.support.slack import SLACK

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parents[2]
SECRET_KEY = "only for tests on the loopback"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
ROOT_URLCONF = "mysite.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["SCRATCH_NAME"],
        "USER": os.environ["SCRATCH_USER"],
        "PASSWORD": os.environ["SCRATCH_PASSWORD"],
        "HOST": "127.0.0.1",
        "PORT": os.environ["SCRATCH_PORT"],
    },
}
"""
WITH_SHARDING = """
INSTALLED_APPS += ["sharding_app", "shop"]
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": os.environ["REDIS_URL"], "socket_timeout": None}]},
    }
}
"""
"""What its owner adds to the settings to use the app in `shop`."""


class ScratchProject:
    """What `startproject mysite` and `startapp shop` leave, in few lines."""

    def __init__(self, folder: Path, live: Live) -> None:
        self.folder = folder
        self.live = live
        self.write("manage.py", MANAGE)
        self.write("mysite/__init__.py", "")
        self.write("mysite/settings.py", SETTINGS)
        self.write("mysite/urls.py", "urlpatterns = []\n")
        self.write("shop/__init__.py", "")

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def append(self, path: str, text: str) -> None:
        with (self.folder / path).open("a") as file:
            file.write(f"\n{text}\n")

    def environment(self, **more: str) -> dict[str, str]:
        server = urlsplit(self.live.database_url)
        ours = {
            "SCRATCH_NAME": server.path.lstrip("/"),
            "SCRATCH_USER": server.username or "",
            "SCRATCH_PASSWORD": server.password or "",
            "SCRATCH_PORT": str(server.port),
            "REDIS_URL": self.live.redis_url,
            # The app is a package like any other here: found by its name, not by where we are.
            "PYTHONPATH": str(self.packages()),
            "PYTHONUNBUFFERED": "1",
        }
        left_out = {"DJANGO_SETTINGS_MODULE", "DATABASE_URL", "RUN_MAIN", "PYTHONWARNINGS"}
        return {**{key: value for key, value in os.environ.items() if key not in left_out}, **ours, **more}

    def packages(self) -> Path:
        """A folder in which the app lies as if pip had put it there."""
        place = self.folder.parent / f"{self.folder.name}-site-packages" / "site-packages"
        place.mkdir(parents=True, exist_ok=True)
        if not (place / "sharding_app").exists():
            (place / "sharding_app").symlink_to(ROOT / "sharding_app")
        return place

    def run(self, *command: str, seconds: float = 60.0, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=self.folder, env=self.environment(**more), capture_output=True, text=True,
            check=False, timeout=seconds * SLACK, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("manage.py", *arguments)

    def program(self, *arguments: str, **more: str) -> Program:
        return Program([sys.executable, "manage.py", *arguments], self.environment(**more), self.folder)

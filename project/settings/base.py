"""What every flavour of the demo site shares. Importing it starts nothing and connects to nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from project.servers import DEFAULT_FOLDER, DataFolder
from project.settings.urls import database

BASE_DIR = Path(__file__).resolve().parents[2]
DATA_FOLDER = DEFAULT_FOLDER

DATABASE_URL = os.environ.get("DATABASE_URL", "")
REDIS_URL = os.environ.get("REDIS_URL", "")
EMBEDDED = not (DATABASE_URL and REDIS_URL)
if EMBEDDED:
    # Ports and passwords are chosen at first sight and kept; `project.servers.ensure_servers` starts what they lead to.
    _access = DataFolder(DATA_FOLDER).access()
    DATABASE_URL = DATABASE_URL or _access.database_url
    REDIS_URL = REDIS_URL or _access.redis_url

INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "sharding_app",
    "project.shop",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": database(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


def _channel_layer(url: str) -> dict[str, Any]:
    # redis-py 8 gives up on a silent socket after five seconds; a subscriber may well hear nothing for longer.
    return {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": url, "socket_timeout": None}]},
    }


CHANNEL_LAYERS = {"default": _channel_layer(REDIS_URL), "sharding": _channel_layer(REDIS_URL)}

SHARDING: dict[str, Any] = {}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"

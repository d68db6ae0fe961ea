"""What every flavour of the demo site shares. Importing it starts nothing and connects to
nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from project.settings.urls import database, redis_host
from sharding_app import embedded

BASE_DIR = Path(__file__).resolve().parents[2]
DATA_FOLDER = BASE_DIR / ".data"

# The URLs hold passwords: with these names they are no settings, so that no page or command shows
# them.
_database_url = os.environ.get("DATABASE_URL", "")
_redis_url = os.environ.get("REDIS_URL", "")
EMBEDDED = not _database_url

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

DATABASES = {"default": embedded.database(DATA_FOLDER) if EMBEDDED else database(_database_url)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


def _channel_layer(url: str) -> dict[str, Any]:
    if not url:
        return embedded.channel_layer(DATA_FOLDER)
    return {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [redis_host(url)]},
    }


# A PostgreSQL alone is enough: then processes have direct links and no second way.
CHANNEL_LAYERS = (
    {"default": _channel_layer(_redis_url), "sharding": _channel_layer(_redis_url)}
    if _redis_url or EMBEDDED
    else {}
)

DEFAULT_EXCEPTION_REPORTER = "project.settings.debug_page.Reporter"
SHOP_NEEDS_LOGIN = False
"""Whether a customer has to be logged in, and sees no cart but his own. The demo is tried with
curl.
"""

AUCTIONS_OPEN = 6
"""The auction house opens auctions while fewer are open."""

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

"""The app of the test about numbered workers."""

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "tests.acceptance.workers"
    label = "watched_workers"

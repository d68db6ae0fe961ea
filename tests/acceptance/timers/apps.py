"""The app of the tests about durable messages and timers."""

import os

from django.apps import AppConfig

HELD = "ACCEPTANCE_HELD"
"""If it is in the environment, a node commits messages and timers, and delivers none."""


class TimersConfig(AppConfig):
    """Labelled `timers`, so that its clocks are `timers.Clock`."""

    name = "tests.acceptance.timers"
    label = "timers"

    def ready(self) -> None:
        if os.environ.get(HELD):
            from sharding_app.runtime.delivery.deliverer import Deliverer

            setattr(Deliverer, "_send_ready", lambda self: None)  # noqa: B010  (mypy allows no assignment)

"""The app of the fault tests."""

from django.apps import AppConfig


class AcceptanceConfig(AppConfig):
    """Labelled `acceptance`, so that its registers are `acceptance.Register`."""

    name = "tests.acceptance.app"
    label = "acceptance"

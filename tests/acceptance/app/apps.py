"""The app of the fault tests."""

import os

from django.apps import AppConfig

from tests.acceptance.app.releases import become
from tests.acceptance.app.sabotage import SABOTAGES


class AcceptanceConfig(AppConfig):
    """Labelled `acceptance`, so that its registers are `acceptance.Register`."""

    name = "tests.acceptance.app"
    label = "acceptance"

    def ready(self) -> None:
        sabotage = os.environ.get("ACCEPTANCE_SABOTAGE")
        if sabotage:
            SABOTAGES[sabotage]()
        release = os.environ.get("ACCEPTANCE_RELEASE")
        if release:
            become(release)

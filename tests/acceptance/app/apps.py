"""The app of the fault tests."""

import os

from django.apps import AppConfig

from sharding_app.torture.instances import watch_homes
from tests.acceptance.app.releases import become
from tests.acceptance.app.sabotage import SABOTAGES


class AcceptanceConfig(AppConfig):
    """Labelled `acceptance`, so that its registers are `acceptance.Register`."""

    name = "tests.acceptance.app"
    label = "acceptance"

    def ready(self) -> None:
        from sharding_app import ClusterSingleton
        from tests.acceptance.app.entities import TICKER, Ticker

        ClusterSingleton.start(TICKER, entity=Ticker, role=os.environ.get("ACCEPTANCE_ROLE") or None)
        watch_homes()
        sabotage = os.environ.get("ACCEPTANCE_SABOTAGE")
        if sabotage:
            SABOTAGES[sabotage]()
        release = os.environ.get("ACCEPTANCE_RELEASE")
        if release:
            become(release)

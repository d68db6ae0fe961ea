"""The app of the fault tests."""

import os
import signal
import threading

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
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR2, _stand_still)
        sabotage = os.environ.get("ACCEPTANCE_SABOTAGE")
        if sabotage:
            SABOTAGES[sabotage]()
        release = os.environ.get("ACCEPTANCE_RELEASE")
        if release:
            become(release)


def _stand_still(*_: object) -> None:
    """Hold the event loop of this process without end, as a deadlock of threads would."""
    threading.Event().wait()

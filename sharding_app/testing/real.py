"""The real mode: one node of the cluster in this process, on the test's database and the real
channel layer.
"""

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Iterator

from sharding_app import wiring
from sharding_app.errors import Unavailable
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.liveness.watchdog import Watchdog
from sharding_app.runtime.node.runner import NodeRunner
from sharding_app.settings.load import get_settings

UP_SECONDS = 20.0
LEAVE_SECONDS = 5.0


class RealNode:
    """A node on a thread with a loop of its own."""

    def __init__(self) -> None:
        self._loop = wiring.new_loop()
        self._settled = threading.Event()
        self._runner: NodeRunner | None = None
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sharding-real-node", daemon=True)

    def start(self) -> None:
        """Start the node; return when it is up."""
        self._thread.start()
        if not self._settled.wait(UP_SECONDS) or self._trouble is not None:
            self.stop()
            raise Unavailable(f"the node of this test did not start: {self._trouble or 'it took too long'}")

    def stop(self) -> None:
        """Let the node leave. Its connections are closed when this returns."""
        runner = self._runner
        if runner is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(runner.request_stop, LEAVE_SECONDS)
        self._thread.join(UP_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live())
        except Exception as error:  # noqa: BLE001  (it is told by `start`, on the test's thread)
            self._trouble = error
        finally:
            self._settled.set()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _live(self) -> None:
        settings, clock = get_settings(), BootClock()
        watchdog = Watchdog(clock, settings.handler_warning_seconds)
        watchdog.start()
        self._runner = NodeRunner(
            dataclasses.replace(wiring.node_config("test"), check_state=True),
            wiring.entity_types(settings),
            wiring.node_ports(settings, watchdog, clock),
            wiring.new_incarnation,
        )
        running = asyncio.ensure_future(self._runner.run())
        up = asyncio.ensure_future(self._runner.up.wait())
        try:
            await asyncio.wait((running, up), return_when=asyncio.FIRST_COMPLETED)
            self._settled.set()
            await running
        finally:
            up.cancel()
            watchdog.stop()


@contextlib.contextmanager
def node() -> Iterator[RealNode]:
    """Run a node inside the block."""
    made = RealNode()
    made.start()
    try:
        yield made
    finally:
        made.stop()

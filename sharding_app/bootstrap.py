"""The only wiring: from Django's settings to a node, or to the process-wide gateway of those that only ask."""

import asyncio
import atexit
import importlib.util
import os
import platform
import secrets
import socket
import sys
import threading
from collections.abc import Callable

from django.conf import settings as django_settings

from sharding_app.adapters.channels.consumers import region_endpoint
from sharding_app.adapters.channels.seal import Sealer
from sharding_app.adapters.channels.transport import ChannelsTransport
from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.leases import PostgresLeases
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.probe import looks_pooled
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.cluster_gateway import ClusterGateway
from sharding_app.conf import get_settings
from sharding_app.core.ids import PROXY_PREFIX, Incarnation
from sharding_app.core.lease import Lease
from sharding_app.core.lockkeys import lifeline_keys
from sharding_app.handler_threads import DjangoThreads
from sharding_app.knobs import Settings
from sharding_app.lease_factory import lease_factory
from sharding_app.model import gateway
from sharding_app.model.registry import registry
from sharding_app.model.types import EntityType
from sharding_app.portal import BackgroundPortal, Portal
from sharding_app.ports.lease import Leases
from sharding_app.runtime.clock import BootClock
from sharding_app.runtime.config import NodeConfig, NodePorts, ProcessPorts
from sharding_app.runtime.endpoint import NodeEndpoint
from sharding_app.runtime.exposition import render
from sharding_app.runtime.health import NodeHealth
from sharding_app.runtime.lifeline_thread import LifelineThread
from sharding_app.runtime.lifeline_types import LifelineCallbacks
from sharding_app.runtime.metrics import families
from sharding_app.runtime.process import Process
from sharding_app.runtime.runner import NodeRunner
from sharding_app.runtime.stats import read_stats
from sharding_app.runtime.watchdog import Watchdog
from sharding_app.signals import SignalListener, SignalThread
from sharding_app.testing.names import in_tests
from sharding_app.together import DjangoTogether


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: the same loop, faster."""
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()


def entity_types(settings: Settings) -> list[EntityType]:
    """Every registered type, with the settings it did not say itself."""
    return [
        each.renamed(each.name, each.settings.over(settings.type_defaults))
        for each in registry.all().values()
    ]


def conninfo(alias: str) -> dict[str, object]:
    """How to connect to the database of that alias; a test framework may have given it another name."""
    if in_tests():
        from sharding_app.testing import modes

        modes.refuse_real_database(alias)
    return from_django_settings(django_settings.DATABASES[alias])


def _transport(settings: Settings) -> ChannelsTransport:
    sealer = Sealer(settings.sealing_keys, encrypt=settings.encrypt) if settings.keys else None
    return ChannelsTransport(settings.channel_layer, sealer)


def node_ports(
    settings: Settings, watchdog: Watchdog, clock: BootClock
) -> Callable[[Incarnation], NodePorts]:
    """Ports of a node, new ones for each incarnation."""
    # A node's sessions hold locks and settings: all of them take the direct way, never a transaction pooler's.
    direct = conninfo(settings.lifeline_database)

    def make(incarnation: Incarnation) -> NodePorts:
        def lifeline(cluster_id: str, callbacks: LifelineCallbacks) -> LifelineThread:
            def session(number: int) -> PostgresLifelineSession:
                return PostgresLifelineSession(
                    direct,
                    cluster_id=cluster_id,
                    owner=incarnation,
                    number=number,
                    ttl_seconds=settings.lease_ttl_seconds,
                )

            lease = Lease(settings.lease_own_limit_seconds, settings.lease_ttl_seconds)
            keys = lifeline_keys(cluster_id, incarnation)
            return LifelineThread(
                (session(0), session(1)),
                clock,
                lease,
                keys,
                incarnation,
                settings.lifeline,
                callbacks,
                watchdog,
            )

        journal = PostgresJournal(direct, owner=incarnation)
        store = PostgresStore(direct, owner=incarnation)

        def leases(path: str) -> Leases:
            factory = lease_factory(path)
            if factory is None:
                terms, ttl = settings.shard_leases, settings.lease_ttl_seconds
                return PostgresLeases(store, incarnation, terms, ttl)
            return factory(incarnation, settings.shard_leases)

        return NodePorts(
            store=store,
            journal=journal,
            leases=leases,
            together=DjangoTogether(
                settings.database,
                journal,
                owner=incarnation,
                threads=settings.also_threads,
                lock_timeout_seconds=settings.also_lock_timeout_seconds,
            ),
            transport=_transport(settings),
            clock=clock,
            lifeline=lifeline,
            endpoint=region_endpoint,
            watch=watchdog,
            listener=SignalListener(signal_thread),
            threads=DjangoThreads(),
        )

    return make


signal_thread = SignalThread()
"""One for the process: what its incarnations tell comes in one order."""


def make_runner(config: NodeConfig, watchdog: Watchdog, clock: BootClock) -> NodeRunner:
    """A node process; its loop is also where this process's own refs lead."""
    settings = get_settings()
    portal = Portal(asyncio.get_running_loop(), settings.ask_timeout_seconds, settings.node().region)
    _use(portal)
    return NodeRunner(
        config,
        entity_types(settings),
        node_ports(settings, watchdog, clock),
        new_incarnation,
        portal.joined,
    )


def new_incarnation() -> Incarnation:
    return f"n-{secrets.token_hex(8)}"


def node_endpoint(runner: NodeRunner, watchdog: Watchdog) -> NodeEndpoint:
    """Health and metrics of a node process."""

    def metrics() -> str:
        node = runner.node
        if node is None or not hasattr(node, "lifeline"):
            return ""
        return render(families(read_stats(node, 0), {"node": runner.config.name}))

    def undeclared() -> list[str]:
        return [
            f"{each.name!r} is declared twice, and {each.refused} is not hosted"
            for each in registry.duplicates()
        ]

    health = NodeHealth(lambda: runner.node, lambda: watchdog.lag_seconds, undeclared)
    return NodeEndpoint(health, metrics, get_settings().metrics_token)


def host_name() -> str:
    return socket.gethostname() or platform.node()


def node_name() -> str:
    """What a node of this process is called unless its command line says so."""
    return get_settings().node_name or f"{host_name()}-{os.getpid()}"


def node_config(name: str = "", roles: tuple[str, ...] | None = None, app_version: str = "") -> NodeConfig:
    return get_settings().node(
        name=name or node_name(), host=host_name(), pid=os.getpid(), roles=roles, app_version=app_version,
        development=django_settings.DEBUG,
    )  # fmt: skip


def client_process() -> Process:
    """A process that only asks: a web process, a worker, a shell."""
    settings = get_settings()
    incarnation = f"{PROXY_PREFIX}{secrets.token_hex(8)}"
    database = conninfo(settings.database)
    pooled = settings.lifeline_database != settings.database or looks_pooled(database)
    ports = ProcessPorts(
        store=PostgresStore(database, owner=incarnation, pooled=pooled),
        transport=_transport(settings),
        clock=BootClock(),
    )
    return Process(incarnation, settings.node(), ports, entity_types(settings))


GOODBYE_SECONDS = 1.5
"""The end of a process waits for its goodbye no longer than this."""

_lock = threading.Lock()
_portal: Portal | None = None
_background: BackgroundPortal | None = None


def _use(portal: Portal) -> None:
    global _portal
    _portal = portal
    gateway.set_gateway(make_gateway)


def make_gateway() -> ClusterGateway:
    """The gateway of this process; while tests run, to a cluster in memory unless they ask for the real one."""
    if in_tests():
        from sharding_app.testing import modes

        if not modes.is_real():
            return modes.memory_cluster().gateway
    return ClusterGateway(portal())


def portal() -> Portal:
    """The way to this process's place in the cluster: a node's own, else one on a background loop, made at first use."""
    global _background
    with _lock:
        if _portal is not None:
            return _portal
        if _background is None:
            settings = get_settings()
            _say_goodbye_at_exit()
            _background = BackgroundPortal(
                client_process, new_loop, settings.ask_timeout_seconds, settings.node().region
            )
        return _background.portal


def close_client() -> None:
    """End the background loop of this process, if it has one; the next use makes another."""
    global _background
    with _lock:
        background, _background = _background, None
    gateway.set_gateway(make_gateway)
    if background is not None:
        background.close()


def _say_goodbye_at_exit() -> None:
    """A client that only exits would leave a link at each node that it has spoken to, for minutes. The children of
    multiprocessing and of Celery end without atexit: they have finalizers of their own."""
    atexit.unregister(_goodbye)
    atexit.register(_goodbye)
    for name in ("multiprocessing.util", "billiard.util"):
        module = sys.modules.get(name)
        if module is not None:
            module.Finalize(None, _goodbye, exitpriority=1)


def _goodbye() -> None:
    background = _background
    if background is not None and background.pid == os.getpid():
        background.close(GOODBYE_SECONDS)


def _after_fork() -> None:
    """The parent's threads and sockets are not the child's: begin anew at first use."""
    global _lock, _portal, _background
    _lock = threading.Lock()
    _portal = None
    _background = None
    gateway.set_gateway(make_gateway)


os.register_at_fork(after_in_child=_after_fork)

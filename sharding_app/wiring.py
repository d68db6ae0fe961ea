"""The only wiring: from Django's settings to a node, or to the gateway of a client."""

import asyncio
import contextlib
import importlib
import importlib.util
import os
import platform
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import cast

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from sharding_app.adapters.channels.consumers import region_endpoint
from sharding_app.adapters.channels.seal import Sealer
from sharding_app.adapters.direct.directory import RowDirectory
from sharding_app.adapters.direct.either import EitherTransport
from sharding_app.adapters.direct.tls import tls_of
from sharding_app.adapters.direct.transport import DirectTransport, Listen
from sharding_app.adapters.django.connections import DjangoThreads
from sharding_app.adapters.django.database import commits, no_commits
from sharding_app.adapters.django.leases import lease_factory
from sharding_app.adapters.django.outside import DjangoOutside
from sharding_app.adapters.django.projecting import DjangoPart
from sharding_app.adapters.django.transactional import DjangoTogether
from sharding_app.adapters.personal.journal import SealedJournal, SealedTogether
from sharding_app.adapters.personal.vault import Vault
from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.leases import PostgresLeases
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.probe import looks_pooled
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.client.gateway import ClusterGateway
from sharding_app.client.portal import BackgroundPortal, Portal
from sharding_app.embedded import started
from sharding_app.entities import gateway
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import ProjectionType
from sharding_app.entities.registry import registry
from sharding_app.ports.journal import Journal
from sharding_app.ports.lease import Leases
from sharding_app.ports.store import ClusterStore
from sharding_app.ports.transport import Transport
from sharding_app.protocol.direct.company import Company
from sharding_app.protocol.ids import PROXY_PREFIX, EntityId, Incarnation, ShardId, shard_of
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.records import TypeConfig
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.base.config import NodeConfig, NodePorts, ProcessPorts
from sharding_app.runtime.base.interfaces import LifelineCallbacks
from sharding_app.runtime.liveness.thread import LifelineThread
from sharding_app.runtime.liveness.watchdog import Watchdog
from sharding_app.runtime.node.endpoint import NodeEndpoint
from sharding_app.runtime.node.health import NodeHealth
from sharding_app.runtime.node.process import Process, cluster_of
from sharding_app.runtime.node.runner import NodeRunner
from sharding_app.runtime.node.stats import read_stats
from sharding_app.runtime.node.type_compatibility import type_config
from sharding_app.runtime.projections.worker import Making, set_parts
from sharding_app.runtime.telemetry.exposition import Rising, render
from sharding_app.runtime.telemetry.metrics import families
from sharding_app.settings.load import get_problems, get_settings
from sharding_app.settings.real_databases import refuse_real_database
from sharding_app.settings.schema import Settings
from sharding_app.signals import SignalListener, SignalThread


def new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop if it is installed: the same, but faster."""
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        _open_standard_files()
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()


def _open_standard_files() -> None:
    """Open standard input, output and error where a process was started without one.

    Otherwise uvloop's loop gets their descriptors, and its end aborts the process.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it is the lowest that is free


def entity_types(settings: Settings) -> list[EntityType]:
    """Return every registered type, with the site's defaults for settings that it does not give."""
    return [
        each.renamed(each.name, each.settings.over(settings.type_defaults))
        for each in registry.all().values()
    ]


def conninfo(alias: str) -> dict[str, object]:
    """Return how to connect to that database; a test framework may have given it another name.

    A server of `embedded` is started first.
    """
    refuse_real_database(alias)
    vendor = connections[alias].vendor
    if vendor != "postgresql":  # a shell makes no checks
        raise ImproperlyConfigured(
            f"The database {alias!r} is {vendor}, not PostgreSQL. The app needs PostgreSQL 14 or newer: name its"
            " alias as SHARDING['DATABASE'], or use the servers in the box"
            " (sharding_app.embedded.database)."
        )
    if not commits(alias):
        raise ImproperlyConfigured(no_commits(alias))
    return from_django_settings(started(django_settings.DATABASES[alias]))


def further_ways(settings: Settings) -> dict[str, dict[str, object]]:
    """Return how to connect to each further journal."""
    return {alias: conninfo(alias) for alias in settings.further_journals}


PATIENCE_BEYOND_A_LEASE = 2.0
"""More seconds than a lease without an answer: a frozen node has lost its locks by then."""


def _transport(settings: Settings, store: ClusterStore, *, listens: bool) -> Transport:
    """Make the transport that `LINKS` names.

    Only a node `listens`: others have no row to be found by.
    """
    sealer = Sealer(settings.sealing_keys, encrypt=settings.encrypt) if settings.keys else None
    if settings.links == "channel_layer":
        return _over_layer(settings, sealer)
    direct = DirectTransport(
        RowDirectory(store),
        keys=settings.sealing_keys,
        sealer=sealer,
        listen=_listen(settings) if listens else None,
        tls=tls_of(**settings.link_tls) if settings.link_tls else None,
        company=Company(settings.lease_ttl_seconds + PATIENCE_BEYOND_A_LEASE) if listens else None,
    )
    if settings.links == "direct":
        return direct
    return EitherTransport(direct, _over_layer(settings, sealer))


def _over_layer(settings: Settings, sealer: Sealer | None) -> Transport:
    try:
        # Direct links need none of these packages.
        from sharding_app.adapters.channels.transport import ChannelsTransport
    except ImportError as error:
        raise ImproperlyConfigured(
            f"Links over the channel layer need the package channels-redis ({error}). "
            'Run: pip install "django-sharding-app[redis]". Or set SHARDING["LINKS"] to "direct".'
        ) from error
    return ChannelsTransport(settings.channel_layer, sealer)


def _import_before_a_loop_runs() -> None:
    """Import what links over the channel layer need.

    It takes long on a busy machine, and a node whose loop waits for it says that it stands still.
    """
    if django_settings.configured and not get_problems() and get_settings().links != "direct":
        with contextlib.suppress(ImportError):  # `_over_layer` says what is missing
            importlib.import_module("sharding_app.adapters.channels.transport")


_import_before_a_loop_runs()


def _listen(settings: Settings) -> Listen:
    if settings.link_place is None:
        return Listen(folder=settings.link_socket_folder)
    host, port = settings.link_place
    return Listen(
        folder=settings.link_socket_folder,
        bind=(settings.link_bind or host, port),
        seen_as=host,
        seen_port=port,
    )


def personal_vault(settings: Settings) -> Vault | None:
    """Return the ciphers of personal data; None: the settings have no keys for them."""
    return Vault(settings.personal_secrets) if settings.personal_keys else None


def node_ports(
    settings: Settings, watchdog: Watchdog, clock: BootClock
) -> Callable[[Incarnation], NodePorts]:
    """Return a function that makes a node's ports, new ones for each incarnation."""
    # A node's sessions hold locks and settings: all of them connect directly, never through a
    # pooler.
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
                watchdog,
            )

        vault = personal_vault(settings)
        journals = (CLUSTERS_OWN, *settings.further_journals)
        threads = DjangoThreads()

        def part(projection: ProjectionType, name: str) -> DjangoPart:
            made = DjangoPart(
                settings.database, projection, owner=incarnation, vault=vault, journal=name, journals=journals
            )
            threads.watch(made.thread)
            return made

        set_parts(Making(part, journals))
        connections = settings.journal_connections
        journal = PostgresJournal(direct, owner=incarnation, connections=connections, now=clock.now)
        sealed = SealedJournal(journal, vault)
        # The keys of persons are in the cluster's own database.
        further = {
            alias: SealedJournal(
                PostgresJournal(conninfo(alias), owner=incarnation, connections=connections, now=clock.now),
                vault,
                journal,
            )
            for alias in settings.further_journals
        }
        together = DjangoTogether(
            settings.database,
            journal,
            owner=incarnation,
            threads=settings.transaction_threads,
            lock_timeout_seconds=settings.transaction_lock_timeout_seconds,
        )
        threads.watch(together.pool)
        store = PostgresStore(direct, owner=incarnation, journals=settings.journal_weights)

        def leases(path: str) -> Leases:
            factory = lease_factory(path)
            if factory is None:
                terms, ttl = settings.shard_leases, settings.lease_ttl_seconds
                return PostgresLeases(store, incarnation, terms, ttl)
            return factory(incarnation, settings.shard_leases)

        return NodePorts(
            store=store,
            journal=cast(Journal, sealed),
            journals=cast(dict[str, Journal], further),
            leases=leases,
            together=SealedTogether(together, sealed),
            transport=_transport(settings, store, listens=True),
            clock=clock,
            lifeline=lifeline,
            endpoint=region_endpoint,
            watch=watchdog,
            listener=SignalListener(signal_thread),
            threads=threads,
        )

    return make


signal_thread = SignalThread()
"""One thread for the process: signals of all its incarnations come in one order."""


def make_runner(config: NodeConfig, watchdog: Watchdog, clock: BootClock) -> NodeRunner:
    """Make the runner of a node process. Its loop also serves this process's own refs."""
    settings = get_settings()
    node = settings.node()
    portal = Portal(asyncio.get_running_loop(), settings.ask_timeout_seconds, node.region, node.followers)
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
    """Make the endpoint for health and metrics of a node process."""

    rising = Rising()

    def metrics() -> str:
        node = runner.node
        if node is None:
            return ""
        return render(rising(families(read_stats(node, 0), {"node": runner.config.name})))

    def undeclared() -> list[str]:
        return [
            f"{each.name!r} is declared twice; {each.refused} is not hosted" for each in registry.duplicates()
        ]

    health = NodeHealth(lambda: runner.node, lambda: watchdog.lag_seconds, undeclared)
    return NodeEndpoint(health, metrics, get_settings().metrics_token)


def host_name() -> str:
    return socket.gethostname() or platform.node()


def node_name() -> str:
    """Return the name of a node of this process, unless its command line gives one."""
    return get_settings().node_name or f"{host_name()}-{os.getpid()}"


def node_config(name: str = "", roles: tuple[str, ...] | None = None, app_version: str = "") -> NodeConfig:
    return get_settings().node(
        name=name or node_name(), host=host_name(), pid=os.getpid(), roles=roles, app_version=app_version,
        development=django_settings.DEBUG,
    )  # fmt: skip


def placing() -> dict[str, tuple[TypeConfig, Callable[[EntityId], ShardId]]]:
    """Return the configuration of each type by these settings, and the shards of its entities."""
    config = node_config()
    found: dict[str, tuple[TypeConfig, Callable[[EntityId], ShardId]]] = {}
    for each in entity_types(get_settings()):
        if not each.proxy_only:
            ours = type_config(each, config)
            by_hash = partial(shard_of, number_of_shards=ours.number_of_shards)
            found[each.name] = ours, each.extractor.checked_shard_id if each.extractor else by_hash
    return found


async def client_process() -> Process:
    """Make a process that only calls: a web process, a worker, a shell."""
    settings = get_settings()
    incarnation = f"{PROXY_PREFIX}{secrets.token_hex(8)}"
    database = conninfo(settings.database)
    pooled = settings.lifeline_database != settings.database or looks_pooled(database)
    store = PostgresStore(database, owner=incarnation, pooled=pooled)
    ports = ProcessPorts(
        store=store,
        transport=_transport(settings, store, listens=False),
        clock=BootClock(),
    )
    return Process(incarnation, settings.node(), ports, entity_types(settings), await cluster_of(ports))


GOODBYE_SECONDS = 1.5
"""The end of a process waits for its goodbye no longer than this."""
HOLD_SECONDS = 5.0
"""And then for its client's thread, which comes to rest at its next turn."""

_lock = threading.Lock()
_portal: Portal | None = None
_background: BackgroundPortal | None = None
_unended: list[BackgroundPortal] = []
"""Those that were closed and whose threads have not ended yet."""


def _use(portal: Portal) -> None:
    global _portal
    _portal = portal
    gateway.set_gateway(make_gateway)


def make_gateway() -> ClusterGateway:
    """Return the gateway of this process."""
    settings = get_settings()
    outside = DjangoOutside(settings.database, personal_vault(settings))
    return ClusterGateway(portal(), outside, max_message_bytes=settings.link_max_message_bytes)


def portal() -> Portal:
    """Return this process's portal: a node's own, or one on a background loop.

    The latter is made at first use.
    """
    global _background
    with _lock:
        if _portal is not None:
            return _portal
        if _background is None:
            settings = get_settings()
            _say_goodbye_in_children()
            node = settings.node()
            _background = BackgroundPortal(
                client_process, new_loop, settings.ask_timeout_seconds, node.region, node.followers
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
        _unended[:] = [each for each in (*_unended, background) if each.goes_on]


def _say_goodbye_in_children() -> None:
    """Close the client at the end of a child of multiprocessing or of Celery: it ends without
    atexit, and has finalizers of its own.
    """
    for name in ("multiprocessing.util", "billiard.util"):
        module = sys.modules.get(name)
        if module is not None:
            module.Finalize(None, goodbye, exitpriority=1)


def goodbye() -> None:
    """Close the client when this process exits.

    A client that only exits would leave a link at each node that it has called, for minutes. A
    process that has loaded multiprocessing comes here twice.
    """
    ours = [each for each in (_background, *_unended) if each is not None and each.pid == os.getpid()]
    try:
        for each in ours:
            each.close(GOODBYE_SECONDS)
    finally:  # Ctrl-C may come once more
        for each in ours:
            each.hold(HOLD_SECONDS)


def _after_fork() -> None:
    """Forget the parent's threads and sockets after a fork; the first use makes new ones."""
    global _lock, _portal, _background
    _lock = threading.Lock()
    for former in (_portal, None if _background is None else _background.portal):
        if former is not None:
            former.forked()
    _portal = None
    _background = None
    _unended.clear()
    gateway.set_gateway(make_gateway)


os.register_at_fork(after_in_child=_after_fork)

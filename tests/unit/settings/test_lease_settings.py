"""`USE_LEASE`: where leases come from, and their times."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from sharding_app import Entity, ShardingSettings, wiring
from sharding_app.adapters.django.leases import lease_factory
from sharding_app.adapters.postgres.leases import PostgresLeases
from sharding_app.checks import check_settings
from sharding_app.entities.registry import registry
from sharding_app.ports.lease import LeaseFactory
from sharding_app.protocol.liveness.shard_lease import LeaseTerms
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.liveness.watchdog import Watchdog
from sharding_app.settings.load import get_settings, read
from sharding_app.testing.cluster import MemoryCluster


class MyLeases:
    """What a user may write."""

    def __init__(self, owner: str, terms: LeaseTerms) -> None:
        self.owner = owner
        self.terms = terms

    async def acquire(self, names: Sequence[str]) -> Collection[str]:
        return names

    async def renew(self, names: Sequence[str]) -> Collection[str]:
        return names

    async def release(self, names: Sequence[str]) -> None:
        """Release nothing: there is no other process."""

    async def close(self) -> None:
        """Nothing is open."""


fits: LeaseFactory = MyLeases
HERE = "tests.unit.settings.test_lease_settings"
NOT_CALLABLE = 5


def problems(**sharding: Any) -> str:
    return "\n".join(str(each) for each in read(sharding, {})[1])


def test_e3_a_factory_is_found_by_its_path() -> None:
    assert lease_factory(f"{HERE}.MyLeases") is MyLeases
    assert lease_factory("postgres") is None
    assert lease_factory("") is None
    for path, said in (
        (f"{HERE}.TheirLeases", "cannot import the lease factory"),
        ("no.such.module", "cannot import the lease factory"),
        ("nonsense", "cannot import the lease factory"),
        (f"{HERE}.NOT_CALLABLE", "not callable"),
    ):
        with pytest.raises(ImproperlyConfigured, match=said):
            lease_factory(path)
        assert said in problems(USE_LEASE=path)


def test_e3_each_node_has_leases_of_its_own_with_the_times_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wiring, "conninfo", lambda alias: {"dbname": alias})
    ports = wiring.node_ports(get_settings(), Watchdog.__new__(Watchdog), BootClock())
    leases = ports("n-1").leases(f"{HERE}.MyLeases")
    assert isinstance(leases, MyLeases)
    assert leases.owner == "n-1"
    assert leases.terms == LeaseTerms()
    assert isinstance(ports("n-1").leases("postgres"), PostgresLeases)


class Leased(Entity, name="conf.Leased"):
    settings = ShardingSettings(use_lease="postgres")


class AlsoLeased(Entity, name="conf.AlsoLeased"):
    settings = ShardingSettings(use_lease="postgres")


class OtherLease(Entity, name="conf.OtherLease"):
    settings = ShardingSettings(use_lease=f"{HERE}.MyLeases")


def test_e3_types_with_one_path_share_what_it_leads_to() -> None:
    async def play() -> None:
        async with MemoryCluster([Leased, AlsoLeased, OtherLease], nodes=1) as cluster:
            node = cluster.nodes["node1"]
            assert sorted(node.hosting.keepers) == ["postgres", f"{HERE}.MyLeases"]
            keepers = {name: host.gate._keeper for name, host in node.hosts.items() if host.gate is not None}
            assert keepers["conf.Leased"] is keepers["conf.AlsoLeased"]
            assert keepers["conf.Leased"] is not keepers["conf.OtherLease"]

    asyncio.run(play())


def test_e3_a_types_own_path_is_checked_too() -> None:
    with registry.isolated():

        class Elsewhere(Entity, name="conf.Elsewhere"):
            settings = ShardingSettings(use_lease="no.such.lease")

        (problem,) = (each for each in check_settings() if "Elsewhere" in each.msg)
    assert problem.id == "sharding.E001"
    assert "cannot import the lease factory 'no.such.lease'" in problem.msg


def test_e4_times_that_do_not_fit_are_refused() -> None:
    settings, wrong = read({"SHARD_LEASE_TTL_SECONDS": 60.0}, {})
    assert wrong == []
    assert settings.shard_leases.renew_every == 6.0
    assert settings.node().shard_leases == LeaseTerms(ttl_seconds=60.0)
    assert "renewed at least twice" in problems(SHARD_LEASE_TTL_SECONDS=10.0)
    assert problems(SHARD_LEASE_TTL_SECONDS=10.0, SHARD_LEASE_RENEW_SECONDS=1.0) == ""


def test_use_lease_is_what_types_get_that_say_nothing() -> None:
    settings, _ = read({"USE_LEASE": "postgres"}, {})
    assert ShardingSettings().over(settings.type_defaults).use_lease == "postgres"
    assert ShardingSettings(use_lease="").over(settings.type_defaults).use_lease == ""


def test_times_of_entities_are_keys_too() -> None:
    settings, wrong = read(
        {
            "ENTITY_RECOVERY_NUMBER": 5,
            "ENTITY_RECOVERY_INTERVAL_SECONDS": 0.2,
            "ENTITY_STOP_TIMEOUT_SECONDS": 3.0,
            "ENTITY_RESTART_BACKOFF_SECONDS": 4.0,
        },
        {},
    )
    assert wrong == []
    config = settings.node()
    assert config.recovery_rate == (5, 0.2)
    assert config.stop_timeout_seconds == 3.0
    assert config.restart_backoff_seconds == 4.0
    assert read({}, {})[0].node().recovery_rate is None

"""Probes and metrics, of a node and of the site."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.handlers.base import BaseHandler
from django.db import DatabaseError, OperationalError, connection, connections
from django.test import Client, override_settings
from django.urls import include, path
from prometheus_client.parser import text_string_to_metric_families

from sharding_app.adapters.django.database import ReadTooLong
from sharding_app.contrib.health_check import ShardingHealthCheck
from sharding_app.errors import WrongContext
from sharding_app.http import health, metrics, urls
from sharding_app.operations.cache import Unreachable
from sharding_app.operations.snapshot import MessageCounts, read_snapshot
from sharding_app.operations.status import findings
from sharding_app.protocol.histogram import SECONDS
from sharding_app.runtime.node import endpoint as endpoint_module
from sharding_app.runtime.node.endpoint import MAX_CONNECTIONS, MAX_REQUEST_BYTES, NodeEndpoint
from sharding_app.runtime.node.health import ALIVE_LAG_SECONDS, NodeHealth
from sharding_app.runtime.telemetry.exposition import Buckets, Family, Rising, Sample, render
from sharding_app.runtime.telemetry.metrics import families
from tests.support.answering_nodes import FakeNodes, HandClock, answer, collector
from tests.support.cluster_rows import Person, add_projection
from tests.support.given import until
from tests.support.slack import SLACK

urlpatterns = [path("sharding/", include("sharding_app.http.urls"))]


# -- The format ------------------------------------------------------------------------------------


def read(text: str) -> dict[str, Any]:
    """As Prometheus reads it."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_the_official_parser_reads_a_nodes_metrics() -> None:
    found = read(render(families(answer("n-a", 100.0), {"node": "node-a"})))
    commands = found["sharding_commands"].samples[0]
    assert (commands.labels, commands.value) == ({"node": "node-a", "type": "shop.Cart"}, 10_000)
    assert found["sharding_dropped"].samples[0].labels["reason"] == "timeout"
    latency = found["sharding_command_seconds"]
    assert latency.type == "histogram"
    buckets = [each for each in latency.samples if each.name.endswith("_bucket")]
    assert [each.value for each in buckets] == sorted(each.value for each in buckets)
    assert (buckets[-1].labels["le"], buckets[-1].value) == ("+Inf", 10_000)
    assert len(buckets) == len(SECONDS) + 1
    assert found["sharding_coordinates"].samples[0].value == 1
    assert "sharding_term" not in read(render(families(answer("n-b", 1.0), {"node": "node-b"})))


def test_no_metric_names_an_entity() -> None:
    text = render(families(answer("n-a", 100.0), {"node": "node-a"}))
    assert "alice" not in text
    assert {name for family in read(text).values() for sample in family.samples for name in sample.labels} <= {
        "node", "type", "reason", "what", "le", "state",
    }  # fmt: skip


def test_whatever_stands_in_a_label_is_read_as_it_was() -> None:
    strange = 'a"b\\c\nd{e}=,'
    text = render([Family("x", "gauge", 'help "with"\nlines \\ too', [Sample({"type": strange}, 1.5)])])
    assert read(text)["x"].samples[0].labels == {"type": strange}


def test_tells_of_a_process_that_is_not_connected_are_counted() -> None:
    found = read(render(metrics.own_families(None, {("shop.Cart", "unavailable"): 2})))
    dropped = found["sharding_client_dropped"].samples[0]
    assert (dropped.labels, dropped.value) == ({"type": "shop.Cart", "reason": "unavailable"}, 2)


def test_a_histogram_without_counts_is_one_all_the_same() -> None:
    text = render([Family("x", "histogram", "h", [Buckets({}, (0.1, 1.0), [0, 0, 0], 0.0)])])
    assert [each.value for each in read(text)["x"].samples] == [0, 0, 0, 0, 0]


def test_a_counter_does_not_fall_when_a_link_ends_that_it_summed_up() -> None:
    rising = Rising()

    def told(value: float, **labels: str) -> float:
        (family,) = rising([Family("x_total", "counter", "h", [Sample(labels, value)])])
        return float(read(render([family]))["x"].samples[0].value)

    assert [told(each) for each in (1_000_010, 1_000_000, 1_000_005, 3, 4)] == [
        1_000_010, 1_000_010, 1_000_015, 1_000_015, 1_000_016,
    ]  # fmt: skip
    assert told(2, type="a") == 2
    gauge = Family("g", "gauge", "h", [Sample({}, 2.0)])
    assert rising([gauge._replace(samples=[Sample({}, 5.0)])])
    assert rising([gauge]) == [gauge]


# -- A node ----------------------------------------------------------------------------------------


class FakeNode:
    def __init__(self) -> None:
        self.state = "joining"
        self.registered = False
        self.hosting = self
        self.leases_answer = False
        self.locator = self
        self.coordinator: str | None = None
        self.refused: dict[str, str] = {}
        self.reaching = self
        self.why_cut_off = ""

    def not_hosted(self) -> dict[str, str]:
        return self.refused


def node_health(node: FakeNode | None, lag: float = 0.0) -> NodeHealth:
    found: Any = node
    return NodeHealth(lambda: found, lambda: lag)


def test_a_node_is_started_once_it_was_up_and_ready_once_it_is_registered() -> None:
    node = FakeNode()
    asked = node_health(node)
    assert [asked.ask("startup").ok, asked.ask("ready").ok, asked.ask("alive").ok] == [False, False, True]
    node.state = "up"
    assert [asked.ask("startup").ok, asked.ask("ready").ok] == [True, False]
    node.registered = True
    assert not asked.ask("ready").ok
    node.leases_answer = True
    assert asked.ask("ready").ok
    node.registered = False
    assert asked.ask("ready").ok, "another coordinator is no reason to be taken out of service"
    node.state = "leaving"
    assert [asked.ask("startup").ok, asked.ask("ready").ok] == [True, False]


def test_a_node_that_may_not_host_what_it_declares_is_not_ready_and_says_why() -> None:
    node = FakeNode()
    node.state, node.registered, node.leases_answer = "up", True, True
    asked = node_health(node)
    assert asked.ask("ready").ok
    node.refused = {"shop.Cart": "'shop.Cart' is refused: number_of_shards is 8 here and 4 in the cluster"}
    assert asked.ask("ready") == (False, node.refused["shop.Cart"])
    assert asked.ask("startup").ok
    node.refused = {}
    found: Any = node
    twice = NodeHealth(lambda: found, lambda: 0.0, lambda: ["'shop.Cart' is declared twice"])
    assert twice.ask("ready") == (False, "'shop.Cart' is declared twice")


def test_a_node_that_no_coordinator_hears_says_so() -> None:
    node = FakeNode()
    node.state, node.leases_answer = "up", True
    assert node_health(node).ask("ready") == (False, "no coordinator is known yet")
    node.coordinator = "n-a"
    told = node_health(node).ask("ready")
    assert not told.ok
    assert "the coordinator n-a has not heard this node yet" in told.text


def test_a_loop_that_is_far_too_late_is_not_alive() -> None:
    assert not node_health(FakeNode(), ALIVE_LAG_SECONDS + 1).ask("alive").ok
    assert node_health(None).ask("alive").ok


async def talk(endpoint: NodeEndpoint, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 10 * SLACK)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status", "says"),
    [
        (b"GET /alive HTTP/1.1", b"200", b'"status": "pass"'),
        (b"GET /startup/?verbose HTTP/1.1", b"503", b'"output": "the node is joining"'),
        (b"GET /ready HTTP/1.0", b"503", b'"status": "fail"'),
        (b"GET /metrics HTTP/1.1", b"200", b"sharding_x 1"),
        (b"HEAD /metrics HTTP/1.1", b"200", b"text/plain; version=0.0.4"),
        (b"GET /other HTTP/1.1", b"404", b"/startup, /ready"),
        (b"POST /alive HTTP/1.1", b"405", b"only GET"),
        (b"nonsense", b"400", b"not understood"),
        (b"GET /alive HTTP/9", b"400", b"not understood"),
    ],
)
def test_the_endpoint_answers_probes_and_refuses_the_rest(
    request_line: bytes, status: bytes, says: bytes
) -> None:
    async def scene() -> bytes:
        endpoint = NodeEndpoint(node_health(FakeNode()), lambda: "sharding_x 1\n")
        await endpoint.start("127.0.0.1", 0)
        try:
            return await talk(endpoint, request_line + b"\r\nHost: x\r\n\r\n")
        finally:
            await endpoint.stop()

    response = asyncio.run(scene())
    assert response.split(b" ")[1] == status
    assert says in response
    if request_line.startswith(b"HEAD"):
        assert response.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("request_bytes", [b"", b"GET /alive HTTP/1.1\r\n" + b"x" * (2 * MAX_REQUEST_BYTES)])
def test_the_endpoint_survives_what_is_no_request(request_bytes: bytes) -> None:
    async def scene() -> tuple[bytes, bytes]:
        endpoint = NodeEndpoint(node_health(FakeNode()), lambda: "")
        await endpoint.start("127.0.0.1", 0)
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
            writer.write(request_bytes)
            writer.close()
            return b"", await talk(endpoint, b"GET /alive HTTP/1.1\r\n\r\n")
        finally:
            await endpoint.stop()

    _, after = asyncio.run(scene())
    assert b"200 OK" in after


ALIVE = b"GET /alive HTTP/1.1\r\n\r\n"


def test_a_probe_is_answered_however_many_connections_are_silent() -> None:
    async def scene() -> tuple[list[bytes], bytes, int]:
        endpoint = NodeEndpoint(node_health(FakeNode()), lambda: "")
        await endpoint.start("127.0.0.1", 0)
        silent = []
        try:
            answers = []
            for _ in range(4):
                silent += [
                    await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(MAX_CONNECTIONS)
                ]
                answers.append(await talk(endpoint, ALIVE))
            oldest = await asyncio.wait_for(silent[0][0].read(), 10 * SLACK)
            return answers, oldest, len(endpoint._open)
        finally:
            for _, writer in silent:
                writer.close()
            await endpoint.stop()

    answers, oldest, left = asyncio.run(scene())
    assert [answer.split(b" ")[1] for answer in answers] == [b"200"] * 4
    assert oldest == b"", "the oldest one was dropped"
    assert left <= MAX_CONNECTIONS + 1


def test_a_request_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "HEADER_SECONDS", 0.05)

    async def scene() -> bytes:
        endpoint = NodeEndpoint(node_health(FakeNode()), lambda: "")
        await endpoint.start("127.0.0.1", 0)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
            writer.write(b"GET /alive")
            closed = await asyncio.wait_for(reader.read(), 10 * SLACK)
            writer.close()
            return closed
        finally:
            await endpoint.stop()

    assert asyncio.run(scene()) == b""


def test_a_client_that_does_not_read_its_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "ANSWER_SECONDS", 0.1)
    made: list[asyncio.WriteTransport] = []

    async def waits() -> bool:
        return bool(made) and made[0].get_write_buffer_size() > 0

    async def is_dropped() -> bool:
        return made[0].get_write_buffer_size() == 0

    async def scene() -> None:
        endpoint = NodeEndpoint(node_health(FakeNode()), lambda: "x" * 30_000_000)
        serve = endpoint._serve

        async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            made.append(writer.transport)
            await serve(reader, writer)

        monkeypatch.setattr(endpoint, "_serve", noted)
        await endpoint.start("127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        try:
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            await until(waits)
            await until(is_dropped, 5.0)
        finally:
            writer.close()
            await endpoint.stop()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"", b"401"), (b"Authorization: Bearer wrong\r\n", b"401"), (b"authorization:Bearer a-token\r\n", b"200"),
        (b"Authorization: Bearer \xff\r\n", b"401"),
    ],
)  # fmt: skip
def test_a_nodes_metrics_want_the_token_if_there_is_one(header: bytes, status: bytes) -> None:
    async def scene() -> tuple[bytes, bytes]:
        endpoint = NodeEndpoint(node_health(FakeNode()), lambda: "sharding_x 1\n", "a-token")
        await endpoint.start("127.0.0.1", 0)
        try:
            metrics = await talk(endpoint, b"GET /metrics HTTP/1.1\r\n" + header + b"\r\n")
            return metrics, await talk(endpoint, ALIVE)
        finally:
            await endpoint.stop()

    found, probe = asyncio.run(scene())
    assert found.split(b" ")[1] == status
    assert probe.split(b" ")[1] == b"200", "a probe needs none"


# -- The site --------------------------------------------------------------------------------------


@pytest.fixture
def site(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__


@pytest.mark.usefixtures("site")
def test_probes_need_no_transaction_and_no_login(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the project asks of its own views."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    monkeypatch.setattr(health, "_was_ready", True)

    def away(*_: object, **__: object) -> None:
        raise OperationalError("the server is away")

    monkeypatch.setattr(type(connections["default"]), "set_autocommit", away)
    for name in ("alive", "ready", "startup"):
        assert Client().get(f"/sharding/{name}").status_code == 200
    for view in (each.callback for each in urls.urlpatterns):
        assert BaseHandler().make_view_atomic(view) is view


@pytest.mark.usefixtures("site")
def test_the_site_is_ready_once_it_is_connected_and_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    portal = FakePortal()
    monkeypatch.setattr(health, "_was_ready", False)
    monkeypatch.setattr("sharding_app.wiring.portal", lambda: portal)
    for name in ("startup", "ready"):
        page = Client().get(f"/sharding/{name}")
        assert (page.status_code, json.loads(page.content)["output"]) == (
            503, "not connected to the cluster: see the log (sharding.client)",
        ), "what the driver said is not for everybody"  # fmt: skip
    portal.process = object()
    assert Client().get("/sharding/ready").status_code == 200
    portal.process = None
    assert Client().get("/sharding/startup").status_code == 200
    assert Client().get("/sharding/alive").status_code == 200
    assert Client().post("/sharding/alive").status_code == 405


@pytest.mark.usefixtures("site")
def test_why_a_process_can_never_connect_stands_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> FakePortal:
        raise WrongContext("gevent has patched threading")

    monkeypatch.setattr(health, "_was_ready", False)
    monkeypatch.setattr("sharding_app.wiring.portal", refuse)
    assert Client().get("/sharding/ready").status_code == 503
    assert "cannot connect to the cluster: gevent has patched threading" in caplog.text


class FakePortal:
    process: object = None
    drops: Mapping[tuple[str, str], int] = {}
    trouble = 'connection to server at "10.0.0.7" failed: role "shop" does not exist'


@pytest.fixture
def not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharding_app.wiring.portal", FakePortal)


@pytest.mark.usefixtures("site", "rows", "not_connected")
def test_the_sites_metrics_are_for_those_who_may_see_the_dashboard(person: Person) -> None:
    assert Client().get("/sharding/metrics").status_code == 403
    assert person("view_event").get("/sharding/metrics").status_code == 403
    assert person("view_cluster", staff=False).get("/sharding/metrics").status_code == 403
    page = person("view_cluster").get("/sharding/metrics")
    found = read(page.content.decode())
    assert {each.labels["state"]: each.value for each in found["sharding_nodes"].samples} == {
        "joining": 0, "up": 3, "leaving": 0,
    }  # fmt: skip
    assert found["sharding_type_shards"].samples[0].value == 10
    assert found["sharding_database_up"].samples[0].value == 1
    assert found["sharding_client_connected"].samples[0].value == 0


@pytest.mark.usefixtures("site", "rows", "not_connected")
def test_the_sites_metrics_count_messages_that_need_attention(person: Person) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_message (id, type_id, shard, entity, seq, position, target_type, target, command, args,"
            " due, parked, error)"
            " SELECT n, 1, n::integer, 'e', 1, 0, 'shop.Cart', 'e', 'add', '', now() - n::integer * interval '1 hour',"
            " n = '3', CASE WHEN n = '2' THEN 'broken: x' ELSE '' END"
            " FROM unnest('{0,1,2,3}'::text[]) n"
        )
    page = person("view_cluster").get("/sharding/metrics")
    found = read(page.content.decode())
    waiting = found["sharding_messages_waiting"].samples
    assert {each.labels["state"]: each.value for each in waiting} == {"overdue": 2, "failing": 1, "parked": 1}
    (oldest,) = found["sharding_messages_oldest_seconds"].samples
    assert oldest.labels == {"type": "shop.Cart"}
    assert 7200 <= oldest.value < 7300
    assert found["sharding_messages"].samples


@pytest.mark.usefixtures("site", "rows", "not_connected")
def test_the_sites_metrics_tell_how_far_projections_have_come(person: Person) -> None:
    add_projection()
    client = person("view_cluster")
    found = read(client.get("/sharding/metrics").content.decode())

    def samples(name: str) -> list[Any]:
        return [(each.labels, each.value) for each in found[f"sharding_projection_{name}"].samples]

    open_1 = {"projection": "shop.Open", "version": "1"}
    assert samples("events") == [(open_1, 1234)]
    assert samples("behind_events") == [(open_1, 3)]
    assert samples("paused") == [(open_1, 0)]
    assert [(labels["state"], value) for labels, value in samples("waiting")] == [
        ("failing", 1),
        ("parked", 1),
    ]
    assert 600 <= samples("behind_seconds")[0][1] < 700


@pytest.mark.usefixtures("site", "rows", "not_connected")
def test_a_role_that_may_not_read_projections_gets_the_other_metrics(person: Person) -> None:
    add_projection()
    client = person("view_cluster")
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE sharding_half")
        cursor.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO sharding_half")
        cursor.execute("GRANT UPDATE ON django_session TO sharding_half")
        cursor.execute("REVOKE SELECT ON sharding_held FROM sharding_half")
        cursor.execute("SET LOCAL ROLE sharding_half")
    page = client.get("/sharding/metrics").content.decode()
    assert read(page)["sharding_database_up"].samples[0].value == 1
    assert "shop.Cart" in page
    assert "shop.Open" not in page


@pytest.mark.usefixtures("site", "rows")
def test_a_process_that_can_never_connect_still_tells_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> FakePortal:
        raise WrongContext("uWSGI runs without threads")

    monkeypatch.setattr("sharding_app.wiring.portal", refuse)
    with override_settings(SHARDING={"METRICS_TOKEN": "a-long-secret"}):
        page = Client().get("/sharding/metrics", headers={"authorization": "Bearer a-long-secret"})
    found = read(page.content.decode())
    assert found["sharding_client_connected"].samples[0].value == 0
    assert found["sharding_database_up"].samples[0].value == 1


@pytest.mark.usefixtures("site", "rows", "not_connected")
def test_a_bearer_token_opens_the_metrics() -> None:
    with override_settings(SHARDING={"METRICS_TOKEN": "a-long-secret"}):
        assert (
            Client().get("/sharding/metrics", headers={"authorization": "Bearer a-long-secret"}).status_code
            == 200
        )
        assert Client().get("/sharding/metrics", headers={"authorization": "Bearer wrong"}).status_code == 403
        assert Client().get("/sharding/metrics", headers={"authorization": "Bearer é"}).status_code == 403
    assert Client().get("/sharding/metrics", headers={"authorization": "Bearer "}).status_code == 403


@pytest.mark.usefixtures("site", "rows", "not_connected")
def test_without_a_database_the_rest_is_still_told(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    client = person("view_cluster")

    def away() -> Any:
        raise DatabaseError("connection refused")

    monkeypatch.setattr(metrics, "read_snapshot", away)
    found = read(client.get("/sharding/metrics").content.decode())
    assert found["sharding_database_up"].samples[0].value == 0


@pytest.mark.usefixtures("site", "rows", "not_connected")
@pytest.mark.parametrize("missing", ["sharding_table_rows", "sharding_projection_paused"])
def test_a_read_of_a_part_that_takes_too_long_leaves_out_that_part(
    person: Person, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    add_projection()
    client = person("view_cluster")

    def slow(*_: Any) -> Any:
        raise ReadTooLong

    if missing == "sharding_table_rows":
        monkeypatch.setattr(metrics, "read_health", slow)
    else:
        monkeypatch.setattr(metrics, "projections", SimpleNamespace(look_if_allowed=slow))
    found = read(client.get("/sharding/metrics").content.decode())
    assert found["sharding_database_up"].samples[0].value == 1
    assert {"sharding_nodes", "sharding_table_rows", "sharding_projection_paused"} - found.keys() == {missing}


@pytest.mark.usefixtures("rows")
def test_the_check_for_django_health_check_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_snapshot()
    looks = collector(FakeNodes(), HandClock(), read=lambda: rows)
    monkeypatch.setattr("sharding_app.contrib.health_check.collector", looks)
    result = asyncio.run(ShardingHealthCheck().get_result())
    assert "suspect" in str(result.error), "these nodes hold no locks"

    def away() -> Any:
        raise Unreachable("PostgreSQL cannot be used")

    monkeypatch.setattr(looks, "look", away)
    assert "PostgreSQL" in str(asyncio.run(ShardingHealthCheck().get_result()).error)


@pytest.mark.django_db(transaction=True)
def test_the_check_for_django_health_check_leaves_no_connection_in_its_thread() -> None:
    """Its threads are the loop's own: no end of a request closes a connection there."""

    def is_open() -> bool:
        return connections["default"].connection is not None

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await ShardingHealthCheck().get_result()
        assert not await asyncio.to_thread(is_open)

    asyncio.run(main())


@pytest.mark.usefixtures("rows")
def test_the_status_tells_of_projections() -> None:
    add_projection()
    told = {each.id: each for each in findings(read_snapshot(), None)}
    assert told["sharding.D211"].what.startswith("1 entity is parked in shop.Open 1")
    assert not told["sharding.D214"].is_severe


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("counts", "told"),
    [
        (MessageCounts(type="shop.Cart", overdue=2, oldest_seconds=400.0), True),
        (MessageCounts(type="shop.Cart", overdue=2, oldest_seconds=100.0), False),
        (MessageCounts(type="shop.Cart", overdue=2, oldest_seconds=400.0, failing=1), False),
        (MessageCounts(type="shop.Cart", parked=9), False),
    ],
)
def test_the_check_knows_an_overdue_backlog_that_no_failure_explains(
    monkeypatch: pytest.MonkeyPatch, counts: MessageCounts, told: bool
) -> None:
    rows = replace(read_snapshot(), message_counts=[counts])
    looks = collector(FakeNodes(), HandClock(), read=lambda: rows)
    monkeypatch.setattr("sharding_app.contrib.health_check.collector", looks)
    result = asyncio.run(ShardingHealthCheck().get_result())
    assert ("2 messages and timers of shop.Cart should have gone out" in str(result.error)) is told

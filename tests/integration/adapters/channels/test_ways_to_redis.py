"""What the Redis layers offer on the way to a server works for us too: password, TLS, Sentinel."""

import asyncio
import datetime as dt
import ipaddress
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.test import override_settings
from redis import asyncio as aioredis
from redis.exceptions import NoPermissionError

from sharding_app.adapters.channels.transport import ChannelsTransport
from sharding_app.embedded import OwnRedis, Servers
from sharding_app.embedded.binaries import find_valkey
from sharding_app.embedded.ports import free_port
from sharding_app.ports.transport import TransportError
from tests.integration.adapters.channels.layers import REDIS_LAYERS
from tests.support.slack import SLACK

pytestmark = [pytest.mark.asyncio, pytest.mark.parametrize("kind", ["core", "pubsub"])]


async def goes_through(kind: str, host: Any, seconds: float = 5.0) -> None:
    config = {"BACKEND": REDIS_LAYERS[kind], "CONFIG": {"hosts": [host]}}
    with override_settings(CHANNEL_LAYERS={"way": config}):
        transport = ChannelsTransport("way")
        async with asyncio.timeout(seconds * SLACK):
            while True:
                try:
                    await transport.open("sharding.test.way")
                    break
                except TransportError as error:
                    print(error)
        try:
            await transport.send("sharding.test.way", b"frame")
            async with asyncio.timeout(seconds * SLACK):
                assert await transport.receive() == b"frame"
        finally:
            await transport.close()


async def test_password_in_the_url_and_in_a_dictionary(kind: str, own_redis: OwnRedis) -> None:
    await goes_through(kind, own_redis.url)
    url = urlsplit(own_redis.url)
    await goes_through(kind, {"host": "127.0.0.1", "port": url.port, "password": url.password})
    with override_settings(
        CHANNEL_LAYERS={
            "way": {"BACKEND": REDIS_LAYERS[kind], "CONFIG": {"hosts": [f"redis://127.0.0.1:{url.port}"]}}
        }
    ):
        with pytest.raises(TransportError, match=r"(?i)auth") as caught:
            await ChannelsTransport("way").open("sharding.test.way")
        assert url.password is not None
        assert url.password not in str(caught.value)


def documented_acl(kind: str) -> list[str]:
    """The rules of docs/links.md."""
    page = (Path(__file__).parents[4] / "docs" / "links.md").read_text()
    rules = re.search(rf"^ACL SETUSER sharding-{kind} (.*)$", page, re.MULTILINE)
    assert rules, kind
    return rules.group(1).split()


async def test_with_no_more_rights_than_documented(kind: str, own_redis: OwnRedis) -> None:
    server: Any = aioredis.Redis.from_url(own_redis.url)
    user = f"sharding-{kind}"
    await server.acl_setuser(user, reset=True)
    await server.execute_command("ACL", "SETUSER", user, *documented_acl(kind))
    url = urlsplit(own_redis.url)
    await goes_through(
        kind, {"host": "127.0.0.1", "port": url.port, "username": user, "password": "a-long-password"}
    )
    stranger: Any = aioredis.Redis(
        host="127.0.0.1", port=url.port or 0, username=user, password="a-long-password"
    )
    for refused in (("FLUSHALL",), ("KEYS", "*"), ("SET", "mine", "1"), ("CONFIG", "GET", "*")):
        with pytest.raises(NoPermissionError):
            await stranger.execute_command(*refused)
    with pytest.raises(NoPermissionError):
        await stranger.publish("another.channel", b"x")
    await stranger.aclose()
    await server.aclose()


async def test_tls(kind: str, servers: Servers, tmp_path: Path) -> None:
    url = urlsplit(servers.redis_url)
    assert url.port is not None
    certificate, key = certificate_for_loopback(tmp_path)
    async with tls_before(url.port, certificate, key) as port:
        there = f"rediss://:{url.password}@127.0.0.1:{port}/0"
        await goes_through(kind, f"{there}?ssl_ca_certs={certificate}")
        await goes_through(kind, {"address": there, "ssl_ca_certs": str(certificate)})


@pytest.fixture
def sentinel(own_redis: OwnRedis, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Return the layer's host for a Sentinel that knows where the master is."""
    port, url = free_port(), urlsplit(own_redis.url)
    program = tmp_path / "sentinel"
    shutil.copy(find_valkey(), program)
    program.chmod(0o700)
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(
        f"bind 127.0.0.1\nport {port}\nprotected-mode no\ndir {tmp_path}\n"
        f"sentinel monitor main 127.0.0.1 {url.port} 1\nsentinel auth-pass main {url.password}\n"
    )
    log = (tmp_path / "sentinel.log").open("wb")
    with log, subprocess.Popen([program, configuration, "--sentinel"], stdout=log, stderr=log) as process:
        yield {"sentinels": [("127.0.0.1", port)], "master_name": "main", "password": url.password}
        process.terminate()
        process.wait(10 * SLACK)


async def test_sentinel(kind: str, sentinel: dict[str, Any]) -> None:
    await goes_through(kind, sentinel, seconds=20.0)


def certificate_for_loopback(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


@asynccontextmanager
async def tls_before(port: int, certificate: Path, key: Path) -> AsyncIterator[int]:
    """Serve TLS in front of a server that has none, as stunnel would."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    writers: set[asyncio.StreamWriter] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        writers.update((writer, there_writer))
        try:
            await asyncio.wait(
                [
                    asyncio.ensure_future(carry(reader, there_writer)),
                    asyncio.ensure_future(carry(there_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            writer.transport.abort()
            there_writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)

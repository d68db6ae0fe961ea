"""The real mode in a project of its own: connections go to the test's database, whatever it is
called, and end before it.
"""

from pathlib import Path

import psycopg
import pytest

from tests.support.live import ROOT, Live
from tests.support.scratch_project import WITH_SHARDING, ScratchProject

INI = """
[pytest]
DJANGO_SETTINGS_MODULE = mysite.settings
asyncio_default_fixture_loop_scope = function
filterwarnings = error
addopts = -q -p no:valkey -p no:cacheprovider -p sharding_app.testing.plugin
"""
TESTS = '''
import os
import time
import pytest
from django.db import connection
from sharding_app.models import Event
from shop.entities import Cart

SERVER = """
SELECT datname, count(*) FROM pg_stat_activity
WHERE application_name LIKE 'sharding/%' AND datname IS NOT NULL GROUP BY datname
"""  # one that is just connecting has no name yet

@pytest.mark.sharding_real
@pytest.mark.django_db(transaction=True)
def test_our_connections_are_there_and_nowhere_else():
    plain = "test_" + os.environ["SCRATCH_NAME"]
    mine = plain + "_" + os.environ["PYTEST_XDIST_WORKER"]
    assert connection.settings_dict["NAME"] == mine
    assert Cart.ref("alice").sync.add("book") == 1
    assert Event.objects.filter(entity="alice").count() == 1
    until = time.monotonic() + 60
    with connection.cursor() as cursor:
        while True:
            cursor.execute(SERVER)
            found = dict(cursor.fetchall())
            # A node's seven, and the client's. One may be opened later, or listed for a moment longer.
            if found.get(mine) == 8 or time.monotonic() > until:
                break
            time.sleep(0.05)
    assert found[mine] == 8, found
    ours = {each for each in found if os.environ["SCRATCH_NAME"] in each}
    assert ours <= {plain + "_gw0", plain + "_gw1"}, found
'''


def test_they_follow_the_suffixes_of_xdist_and_close_before_the_databases_go(
    live_servers: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    with live_servers.empty_database() as live:
        project = ScratchProject(tmp_path / "mysite", live)
        project.append("mysite/settings.py", WITH_SHARDING)
        project.write("pytest.ini", INI)
        project.write("shop/entities.py", (ROOT / "project/shop/entities.py").read_text())
        project.write("shop/test_names.py", TESTS)
        done = project.run("-m", "pytest", "-n", "2", "--dist", "each", seconds=120)
        assert "2 passed" in done.stdout, done.stdout + done.stderr
        with psycopg.connect(live.database_url) as connection:
            name = connection.info.dbname
            left = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"%{name}%"])
            assert left.fetchall() == [(name,)], "the test databases are dropped"
            tables = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'sharding%'")
            assert tables.fetchone() == (0,), "and the real one was not touched"

"""A cluster of whole processes under an assumed role, and under all that a DBA may have set on its
login, at any time.
"""

from collections.abc import Iterator

import pytest

from tests.acceptance.commands.logins import Login, calling
from tests.support.live import Live, look_again
from tests.support.slack import SLACK

HOSTILE = {
    "statement_timeout": "'250ms'",
    "lock_timeout": "'1ms'",
    "idle_in_transaction_session_timeout": "'250ms'",
    "idle_session_timeout": "'250ms'",
    "DateStyle": "'SQL, DMY'",
    "IntervalStyle": "'sql_standard'",
    "TimeZone": "'Asia/Kathmandu'",
    "search_path": "decoy, public",
    "default_transaction_isolation": "'serializable'",
    "default_transaction_deferrable": "'on'",
    "synchronous_commit": "'off'",
    "client_encoding": "'LATIN1'",
    "standard_conforming_strings": "'off'",
    "bytea_output": "'escape'",
    "array_nulls": "'off'",
    "extra_float_digits": "'-15'",
    "row_security": "'off'",
}
COMMITS = """
    CREATE TABLE commits (name text, synchronous text, isolation text);
    GRANT INSERT ON commits TO {owner};
    CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.commits VALUES (
            TG_TABLE_NAME, current_setting('synchronous_commit'), current_setting('transaction_isolation'));
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_commit AFTER INSERT ON sharding_event FOR EACH STATEMENT EXECUTE FUNCTION note_commit();
    CREATE TRIGGER note_commit AFTER INSERT OR UPDATE ON sharding_shard
        FOR EACH STATEMENT EXECUTE FUNCTION note_commit();
    CREATE TRIGGER note_commit AFTER INSERT OR UPDATE ON sharding_node
        FOR EACH STATEMENT EXECUTE FUNCTION note_commit();
"""


@pytest.fixture
def login(live_servers: Live) -> Iterator[Login]:
    with live_servers.empty_database() as live:
        login = Login(live)
        yield login
        login.drop()


def test_what_a_dba_has_set_on_the_role_changes_nothing(login: Login) -> None:
    live = login.live
    with live.program("sharding_node", "--name", "one") as one, calling(live) as call:
        one.wait_line("^node one is up$")
        assert call("a", "book", 1) == "1"
        assert call("a", "book_with_row", 1, "plain") == "2"
        login.sql(COMMITS.format(owner=login.owner))
        login.alter(**HOSTILE)
        if login.sql("SELECT current_setting('server_version_num')::int >= 170000")[0][0]:
            login.alter(transaction_timeout="'250ms'")
        login.end_sessions()
        assert call("a", "book", 1) == "3"
        assert call("a", "book_with_row", 1, "hostile") == "4"
        with live.program("sharding_node", "--name", "two") as two:
            two.wait_line("^node two is up$")
            keys = [f"key-{number}" for number in range(6)]
            assert {call(each, "book", 1) for each in keys} == {"1"}
            two.process.kill()
            two.ended()
            assert {call(each, "book", 1) for each in keys} == {"2"}, (
                "under an assumed role the dead are buried"
            )
        status = look_again(live.manage, "sharding_status")
        assert status.returncode == 0, status.stdout + status.stderr
        doctor = look_again(live.manage, "sharding_doctor")
        assert doctor.returncode == 0, doctor.stdout + doctor.stderr
        commits = login.sql("SELECT DISTINCT name, synchronous FROM commits ORDER BY name")
        assert commits == [(f"sharding_{each}", "on") for each in ("event", "node", "shard")]

        login.alter(search_path="decoy", default_transaction_read_only="'on'")
        login.end_sessions()
        assert call("a", "book", 1) == "5", "tables are found where they were before"
        answer = call("a", "book_with_row", 1, "read-only")
        assert answer.startswith("EntityFailed "), "a user's own rows are written as Django connects"
        assert call("a", "total") == "5"
        with calling(live) as late:
            answer = late("a", "total", seconds=1.0 * SLACK)
            assert "run `manage.py migrate`, or let its role's search_path lead to them" in answer
        assert one.stop() == 0, one.text
    assert "permission denied" not in one.text
    names = login.sql("SELECT name FROM auth_group ORDER BY name")
    assert names == [("hostile",), ("plain",)]

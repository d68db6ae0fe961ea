"""The balance of each account, in a table that the test makes."""

from django.db import connection

from project.sagas.accounts import Account, Moved
from sharding_app import Happened, Projection, on

TABLE = "CREATE TABLE projected_balance (account text PRIMARY KEY, cents bigint, events bigint, last bigint)"
ADD = """
INSERT INTO projected_balance AS b VALUES (%s, %s, 1, %s)
ON CONFLICT (account) DO UPDATE SET cents = b.cents + EXCLUDED.cents, events = b.events + 1, last = EXCLUDED.last
"""


class Balances(Projection, name="acceptance.Balances"):
    source = Account

    @on(Moved)
    def moved(self, happened: Happened[Moved]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(ADD, [happened.entity_id, happened.event.cents, happened.number])

"""The sums of each account, in the table of `sums`."""

from typing import Any

from django.db import connection

from sharding_app import Happened, Projection, on, on_erased
from sharding_app.torture.accounts import Step
from tests.acceptance.app.entities import Account
from tests.acceptance.summed.sums import NAME, ROLE

# Each event adds to its row: one that is handled twice, or left out, stays in the sums.
ADD = """
INSERT INTO summed_account AS s VALUES (%s, %s, 1, %s, (%s <> 1)::integer)
ON CONFLICT (account) DO UPDATE SET cents = s.cents + EXCLUDED.cents, events = s.events + 1, last = EXCLUDED.last,
    displaced = s.displaced + (EXCLUDED.last <> s.last + 1)::integer
"""


class Sums(Projection, name=NAME):
    source = Account
    role = ROLE

    @on(Step)
    def step(self, happened: Happened[Step]) -> None:
        number = happened.number
        with connection.cursor() as cursor:
            cursor.execute(ADD, [happened.entity_id, happened.event.cents, number, number])

    @on_erased
    def erased(self, ref: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM summed_account WHERE account = %s", [ref.entity_id])

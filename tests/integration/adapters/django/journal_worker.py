"""A process that takes turns in both journals until it is killed. Its argument is the name of the
further journal's database.
"""

import os
import sys
import threading

import django


def main(database: str) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    django.setup()
    from django.conf import settings
    from django.db import DatabaseError, connections

    from sharding_app.ports.projections import NotReady
    from tests.integration.adapters.django.two_journals import JOURNALS, SECOND, part

    settings.SHARDING = {**settings.SHARDING, "JOURNALS": {"default": 1, SECOND: 1}}
    connections.settings[SECOND] = {**connections["default"].settings_dict, "NAME": database}

    def work(journal: str) -> None:
        taken, turns = part(journal, events=5, chunk=3, keys=3), 0
        while True:
            try:
                taken._tended(lambda: taken.take(0, 127))
                turns += 1
                if turns % 5 == 0:
                    taken._tended(taken.tidied)
            except (NotReady, DatabaseError):
                continue

    for each in JOURNALS[1:]:
        threading.Thread(target=work, args=(each,), daemon=True).start()
    work(JOURNALS[0])


if __name__ == "__main__":
    main(sys.argv[1])

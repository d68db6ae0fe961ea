"""`python -m tests.acceptance.caller`: a process that calls entities as a Django site would, in
sync code.

It obeys lines of JSON on its standard input, and answers each with a line of JSON. Each order is a
list: what to do, the name of a type, an entity's id, a command, and its arguments.

`ask`        call a command, and wait for its answer
`durably`    store the call as a durable message
`later`      store it as a durable timer, due after the first argument, in seconds
`with row`   as `durably`, in one transaction with a row of the application's
`in vain`    the same, and the transaction is rolled back
"""

import json
import os
import sys
from datetime import timedelta
from typing import Any

import django


def main() -> None:
    django.setup()
    from django.contrib.auth.models import Group
    from django.db import transaction

    from sharding_app import ShardingError
    from sharding_app.entities.registry import registry

    class InVain(Exception):
        """The application's own error."""

    def obey(what: str, type_name: str, entity: str, command: str, args: list[Any]) -> Any:
        entity_type = registry.get(type_name)
        call = getattr(entity_type.cls._sharding_ref(entity).sync, command)
        match what:
            case "ask":
                return call(*args)
            case "durably":
                return call.durably(*args)
            case "later":
                return call.later(timedelta(seconds=args[0]), *args[1:])
            case "with row" | "in vain":
                with transaction.atomic():
                    Group.objects.create(name=f"{entity} {args}")
                    call.durably(*args)
                    if what == "in vain":
                        raise InVain(f"{Group.objects.count()} rows")
        return None

    for line in sys.stdin:
        try:
            answer = {"is": obey(*json.loads(line))}
        except (ShardingError, InVain) as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

"""What the load tells of the calls that are under way."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from sharding_app.torture.load import LATE_SECONDS, LEAST_FITTED, TRIED_SECONDS, Load, fitted, parse, share_of


class Register:
    """A type whose entities answer when they are let."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[list[int]]] = {}

    def ref(self, entity: str, **_: object) -> Any:
        register = self

        class Ref:
            def append(self, token: str) -> asyncio.Future[list[int]]:
                future = asyncio.get_running_loop().create_future()
                register.waiting[entity] = future
                return future

        return Ref()


def test_the_oldest_call_under_way_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        register = Register()
        load = Load(
            parse(["--out", str(tmp_path / "out.jsonl"), "--seed", "1"]),
            register,
            cast(Any, None),
            cast(Any, None),
        )
        assert await load.obey("oldest") == "oldest none"
        before = asyncio.get_running_loop().time()
        first = asyncio.ensure_future(load.call("a", "append"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(load.call("b", "append"))
        await asyncio.sleep(0)
        oldest = await load.obey("oldest")
        assert before <= float(oldest.split()[1])
        register.waiting["a"].set_result([1, 1])
        began = (await first).start
        assert oldest == f"oldest {began}"
        assert float((await load.obey("oldest")).split()[1]) >= began
        register.waiting["b"].set_result([1, 1])
        await second
        assert await load.obey("oldest") == "oldest none"
        load.file.close()
        load.payments._file.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("late", "share"),
    [(0.0, 1.0), (LATE_SECONDS, 1.0), (TRIED_SECONDS, 0.25), (9 * TRIED_SECONDS, 0.05)],
)
def test_the_rate_is_one_that_the_machine_can_carry(late: float, share: float) -> None:
    """Calls of one second that take two: half of the rate is carried, and half of that asked."""
    assert share_of(late) == pytest.approx(share)


def test_the_rate_follows_the_machine() -> None:
    """It may become busier, or an outage may have left more than it can answer at once."""
    slow, quick = [LATE_SECONDS * 2] * 3, [LATE_SECONDS / 2] * 3
    part = 1.0
    assert fitted(part, quick) == part, "never more than was carried"
    assert fitted(part, []) == part, "an outage does not hide"
    assert fitted(part, [*quick, 20.0, 20.0]) == part, "the calls of some entities wait in an outage"
    for _ in range(10):
        before, part = part, fitted(part, slow)
        assert part < before or part == LEAST_FITTED
    assert part == LEAST_FITTED
    for _ in range(10):
        part = fitted(part, quick)
    assert part == 1.0

"""A small virtual cluster that is watched, where nothing is left to chance, and what may be done in
it.
"""

from __future__ import annotations

from asyncio import Future, sleep
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import cast as cast_to

from sharding_app.entities.base import EventSourced
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.events import applies, event
from sharding_app.entities.gateway import Gateway, use_gateway
from sharding_app.entities.handlers import command, query
from sharding_app.entities.many import AT_A_TIME, Answers, Many
from sharding_app.entities.registry import registry
from sharding_app.entities.settings import ShardingSettings
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import Incarnation, ShardKey
from sharding_app.protocol.messages import Message, OperatorRequest
from sharding_app.protocol.records import ShardRow
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.particular import VirtualGateway
from sharding_app.testing.simulation.topology import Cast
from sharding_app.testing.simulation.trace import listening
from sharding_app.testing.simulation.virtual_node import VirtualNode
from sharding_app.testing.simulation.world import World
from tests.simulation.golden.observer import Observer

REST_SECONDS = 1.2
"""After this time no process has anything left to do."""
MOMENT_SECONDS = 0.005
"""Longer than a message is on its way."""
GOES_ON_SECONDS = 10.0
ASK_SECONDS = 8.0

# These classes are for virtual clusters only: a real process must not find them among its types.
with registry.isolated():

    @event
    class ItemAdded:
        sku: str

    class Cart(EventSourced, name="shop.Cart"):
        items: list[str]
        settings = ShardingSettings(number_of_shards=3, passivate_after_seconds=0)

        def __init__(self) -> None:
            self.items = []

        @command
        def add(self, sku: str) -> int:
            self.persist(ItemAdded(sku))
            return len(self.items)

        @command
        async def add_slowly(self, sku: str) -> int:
            await sleep(0.02)
            self.persist(ItemAdded(sku))
            return len(self.items)

        @command
        async def add_and_stop(self, sku: str) -> int:
            await sleep(0.02)
            self.persist(ItemAdded(sku))
            self.context.passivate()
            return len(self.items)

        @query
        def count(self) -> int:
            return len(self.items)

        @applies(ItemAdded)
        def on_item_added(self, happened: ItemAdded) -> None:
            self.items.append(happened.sku)

    class WishList(Cart, name="shop.WishList"):
        """A remembered one."""

        settings = ShardingSettings(number_of_shards=3, remember_entities=True)

    class Couple(Cart, name="shop.Couple"):
        """One whose items another one has too."""

        @command
        def add_for_both(self, sku: str) -> int:
            """Add, and have carl add the same."""
            self.persist(ItemAdded(sku))
            self.send(Couple.ref("carl").add, sku)
            return len(self.items)

    class Basket(Cart, name="shop.Basket"):
        """One that leaves the memory when no message comes."""

        settings = ShardingSettings(number_of_shards=3, passivate_after_seconds=3)


class Halfway(Random):
    """No chance: each message, request and turn takes as long as all others of its kind."""

    def random(self) -> float:
        return 0.499


class Scene:
    """`n1` to `n3` are nodes, the oldest first; `web` is a process that only asks."""

    def __init__(self, world: World, observer: Observer, entity_type: EntityType) -> None:
        self.world = world
        self.observer = observer
        self.type = entity_type
        self.stage = Stage(world)
        self.nodes = world.nodes
        self.web = world.clients[0]

    # -- What happens ------------------------------------------------------------------------------

    def part(self, text: str) -> None:
        """Begin a part of the script, or the script itself. What came before is finished."""
        self.rest()
        self.at_once(text)

    def at_once(self, text: str) -> None:
        """The same at once."""
        if not self.observer.writes:
            self.observer.begin()
        self.observer.heading(text)

    def script(self) -> str:
        """Let what is under way come to its end, and return the script."""
        self.rest()
        assert self.world.failure is None, self.world.failure
        return self.observer.text()

    def rest(self, seconds: float = REST_SECONDS) -> None:
        self.stage.pass_time(seconds)

    def until(self, condition: Callable[[], bool]) -> None:
        self.stage.until(condition, GOES_ON_SECONDS, "the scene goes on")
        assert self.world.failure is None, self.world.failure

    def until_said(self, kind: type[Message]) -> None:
        """Wait until the next message of a kind goes from one process to another."""
        messages = self.world.coverage.messages
        before = messages[kind.__name__]
        self.until(lambda: messages[kind.__name__] > before)

    def start(self, *nodes: VirtualNode) -> None:
        """Start nodes, one after the other."""
        for each in nodes:
            each.boot()
            self.until(lambda: each.is_up)  # noqa: B023  (waits here)

    def start_web(self) -> None:
        self.web.boot()
        self.until(lambda: self.web.started)

    def call(
        self, entity: str, name: str, sku: str, command_id: str = "", by: VirtualNode | None = None
    ) -> Future[bytes]:
        """Have a process call an entity. The call and its answer are lines of the script."""
        asking, loop = self.web.asking, self.web.loop
        if by is not None:
            assert by.node is not None
            asking, loop = by.node, by.process.loops[0]
        handler, made = self.type.commands[name], list[Future[bytes]]()

        def over(ended: Future[bytes]) -> None:
            error = ended.exception()
            outcome = repr(error) if error is not None else handler.decode_result(ended.result())
            self.observer.line(asking.incarnation, f"is answered for {sku}: {outcome}")

        def ask() -> None:
            options = f", command_id={command_id!r}" if command_id else ""
            text = f"{self.type.cls.__name__}.ref({entity!r}{options}).{name}({sku!r})"
            self.observer.line(asking.incarnation, f"calls {text}")
            arguments = handler.encode((sku,), {})
            made.append(asking.ask(Call(self.type.name, entity, name, arguments, ASK_SECONDS, command_id)))
            made[0].add_done_callback(over)

        loop.call_soon_threadsafe(ask)
        self.until(lambda: bool(made))
        return made[0]

    def answered(self, *calls: Future[bytes]) -> None:
        """Wait until these are answered."""
        self.until(lambda: all(each.done() for each in calls))
        self.rest(MOMENT_SECONDS)

    def ask(self, entity: str, sku: str, command_id: str = "", by: VirtualNode | None = None) -> None:
        """Call, and wait for the answer."""
        self.answered(self.call(entity, "add", sku, command_id, by))

    def ask_many(self, *entities: str) -> None:
        """Have web ask many entities at once, and wait for the answers."""
        many: Many[Cart] = Many(self.type, entities, ASK_SECONDS, None, AT_A_TIME)
        answered: list[Answers[int]] = []

        async def ask() -> None:
            who = self.web.asking.incarnation
            self.observer.line(who, f"calls Cart.ask_many({list(entities)}).count()")
            answered.append(await many.count())
            self.observer.line(who, f"is answered: {answered[0]}")

        self.web.loop.call_soon_threadsafe(lambda: self.stage.job(self.web.loop, ask()))
        self.until(lambda: bool(answered))
        self.rest(MOMENT_SECONDS)

    def move(self, entity: str, target: VirtualNode) -> None:
        """Have an operator ask the coordinator to move the shard of an entity."""
        number = self.key_of(entity)[1]
        request = OperatorRequest(
            0, "move", self.type.name, number, target=target.incarnations[-1], by="an operator"
        )
        coordinator = self.world.server.cluster.coordinator.incarnation
        assert coordinator is not None
        self.stage.job(self.web.loop, self._operate(coordinator, request))

    def live_in(self, entity: str, home: VirtualNode) -> None:
        """Have an entity in the memory of a node, with two events."""
        self.ask(entity, "book")
        self.move(entity, home)
        self.until(lambda: self.row_of(entity).home == home.incarnations[-1])
        self.ask(entity, "jar")

    async def _operate(self, node: Incarnation, request: OperatorRequest) -> None:
        await self.web.asking.queries.operate(node, request)

    # -- What is there -----------------------------------------------------------------------------

    def key_of(self, entity: str) -> ShardKey:
        return self.type.name, self.world.shard_of(self.type.name, entity)

    def row_of(self, entity: str) -> ShardRow:
        return self.world.server.cluster.shards[self.key_of(entity)]

    def events_of(self, entity: str) -> int:
        type_id = self.world.server.cluster.type_ids[self.type.name]
        return self.world.server.journal.last_seq(type_id, entity)


@contextmanager
def scene(nodes: int, of: type[EventSourced] = Cart) -> Iterator[Scene]:
    """Nodes that are up, and a process that only asks."""
    made = of._sharding_type
    assert made is not None
    cast = Cast(whole_protocol=False, types=(made,), entities=(), hot=())
    world = World(seed=0, nodes=nodes, faults=[], steps=None, cast=cast)
    world.scheduler.random = world.conditions._random = world.conditions._steps = Halfway()
    world.conditions.heal()
    observer = Observer(world)
    with ExitStack() as stack:
        stack.enter_context(listening(world.trace, lambda text: None))
        stack.callback(world.scheduler.close)
        stack.enter_context(use_gateway(cast_to(Gateway, VirtualGateway(world))))
        stack.enter_context(observer.watching())
        here = Scene(world, observer, made)
        here.start(*world.nodes)
        here.start_web()
        here.rest()
        yield here

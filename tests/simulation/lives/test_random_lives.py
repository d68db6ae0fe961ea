"""Any sequence of commands, retries, crashes, snapshots, trims, moves and recoveries gives what the
journal gives.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.simulation.lives.ledgers import KINDS, PARTS, QUERIES, Kind
from tests.simulation.lives.lives import Life
from tests.simulation.lives.trouble import PLANS, REQUESTS

Place = tuple[int, str]

operations = st.sampled_from([*PARTS, *QUERIES, "add", "add"])
places = st.tuples(st.integers(0, 1), st.sampled_from(["a", "b"]))
"One of the two kinds of entity that a history is about, and an id."
numbers = st.integers(0, 5)
pauses = st.sampled_from([0.0, 0.0, 0.01, 0.03, 0.06, 0.1, 0.3, 2.0])


class RandomLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.life = Life()
        self.kinds: list[Kind] = []

    @initialize(nodes=st.integers(1, 2), kinds=st.permutations(KINDS))
    def begin(self, nodes: int, kinds: list[Kind]) -> None:
        self.kinds = kinds[:2]
        self.life.run(self.life.begin(nodes))

    # -- Calls -------------------------------------------------------------------------------------

    @rule(
        place=places, wanted=st.lists(operations, min_size=1, max_size=5), named=st.booleans(), pause=pauses
    )
    def calls(self, place: Place, wanted: list[str], named: bool, pause: float) -> None:
        for operation in wanted:
            self.life.call(self.kinds[place[0]], place[1], operation, named=named)
        self.life.run(self.life.pass_time(pause))

    @rule(place=places, which=st.lists(numbers, min_size=1, max_size=3), pause=pauses)
    def retries(self, place: Place, which: list[int], pause: float) -> None:
        kind, entity = self.kinds[place[0]], place[1]
        calls = self.life.repeatable(kind, entity)
        for number in which if calls else ():
            self.life.again(kind, entity, calls[-1 - number % len(calls)])
        self.life.run(self.life.pass_time(pause))

    more_calls = calls
    many_calls = calls
    more_retries = retries

    # -- Time --------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([15.0, 50.0]))
    def much_time_passes(self, seconds: float) -> None:
        self.life.run(self.life.pass_time(seconds))

    @rule(whom=st.integers(0, 1))
    def objects_are_forgotten(self, whom: int) -> None:
        self.life.cluster.forget(self.kinds[whom])

    # -- Faults ------------------------------------------------------------------------------------

    @rule(request=st.sampled_from(REQUESTS), plan=st.sampled_from(sorted(PLANS)))
    def next_request(self, request: str, plan: str) -> None:
        self.life.trouble.next(request, plan)

    @rule(plan=st.sampled_from(sorted(PLANS)))
    def next_append(self, plan: str) -> None:
        self.life.trouble.next("append", plan)

    @rule(place=places, times=st.integers(1, 2))
    def next_write_is_refused(self, place: Place, times: int) -> None:
        self.life.cluster.fail_next_write(self.kinds[place[0]], place[1], times=times)

    @rule(copies=st.sampled_from([(), (0.0, 0.0), (0.1,), (0.0, 0.4)]), times=st.integers(1, 3))
    def next_messages(self, copies: tuple[float, ...], times: int) -> None:
        self.life.trouble.copies.extend([copies] * times)

    @rule(seconds=st.sampled_from([0.05, 1.0, 2.5]))
    def server_restarts(self, seconds: float) -> None:
        self.life.run(self.life.restart_server(seconds))

    @rule(which=numbers, how=st.sampled_from(["kill", "cut off", "stop"]))
    def node_goes(self, which: int, how: str) -> None:
        self.life.run(self.life.lose_node(which, how))

    @rule()
    def node_joins(self) -> None:
        self.life.run(self.life.add_node())

    @rule(place=places, which=numbers)
    def shard_moves(self, place: Place, which: int) -> None:
        self.life.run(self.life.move(self.kinds[place[0]], place[1], which))

    # -- Judgement ---------------------------------------------------------------------------------

    @rule()
    def settle(self) -> None:
        self.life.run(self.life.settle())
        self.life.run(self.life.look())

    def teardown(self) -> None:
        life = self.life
        if not self.kinds:
            life.close()
            return
        try:
            life.run(life.settle())
            life.run(life.look())
            life.run(life.recover())
        finally:
            life.run(life.end())
            life.close()


TestRandomLives = RandomLife.TestCase
TestRandomLives.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, derandomize=True, print_blob=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip

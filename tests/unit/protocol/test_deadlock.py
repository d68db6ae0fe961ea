"""The machine that finds deadlocks between chains of calls: what it finds, and what it does not."""

from collections.abc import Sequence

from sharding_app.protocol import deadlock
from sharding_app.protocol.deadlock import Circle, Standing
from sharding_app.protocol.messages import Wait, WaitProbe


def wait(caller: str, request: int, target: str) -> Wait:
    return Wait(f"node-{caller}", request, f"node-{target}", "T", target, "go")


class Places:
    """Entities with the command that each handles, the calls it made and those that wait for it."""

    def __init__(self) -> None:
        self.standing: dict[str, Standing] = {}
        self.refused: list[Sequence[Wait]] = []
        self.sent = 0

    def entity(
        self, name: str, *calls: Wait, queued: Sequence[Wait] = (), running: tuple[str, int] = ("outside", 1)
    ) -> None:
        waiting = {(each.caller, each.request) for each in queued}
        self.standing[name] = Standing("T", name, running, waiting, calls)

    def look(self, *names: str) -> list[WaitProbe]:
        return [probe for name in names or self.standing for probe in deadlock.begin(self.standing[name])]

    def deliver(self, probes: list[WaitProbe], hops: int = 100) -> list[WaitProbe]:
        """Carry probes on until there are none, or for a number of hops."""
        for _ in range(hops):
            following: list[WaitProbe] = []
            for probe in probes:
                self.sent += 1
                found = deadlock.follow(self.standing[probe.way[-1].entity], probe)
                if isinstance(found, Circle):
                    self.refused.append(found.way)
                else:
                    following += found
            probes = following
        return probes


def circle_of(*names: str) -> tuple[Places, list[Wait]]:
    places = Places()
    calls = [wait(a, 7, b) for a, b in zip(names, (*names[1:], names[0]), strict=True)]
    for number, name in enumerate(names):
        places.entity(name, calls[number], queued=[calls[number - 1]])
    return places, calls


def test_one_call_of_a_circle_is_refused_wherever_probes_begin() -> None:
    for names in (("a", "b"), ("b", "a"), ("a", "c", "b", "d")):
        places, _ = circle_of(*names)
        assert not places.deliver(places.look())
        (way,) = places.refused
        assert way[-1].entity == max(names), "the call that waits at the greatest name"
        assert len(way) == len(names)


def test_a_command_that_runs_for_a_call_of_the_circle_is_part_of_it() -> None:
    """a calls b, which runs that call and calls c; c calls a by a chain of its own."""
    places = Places()
    ab, bc, ca = wait("a", 1, "b"), wait("b", 2, "c"), wait("c", 3, "a")
    places.entity("a", ab, queued=[ca])
    places.entity("b", bc, running=(ab.caller, ab.request))
    places.entity("c", ca, queued=[bc])
    assert not places.deliver(places.look())
    (way,) = places.refused
    assert way[-1] == bc


def test_a_way_without_a_circle_is_refused_nowhere() -> None:
    """Three wait one behind the other, and one waits beside a circle without a part in it."""
    places, calls = circle_of("b", "c")
    beside, behind = wait("z", 1, "c"), wait("y", 2, "z")
    places.entity("z", beside, queued=[behind])
    places.entity("y", behind)
    places.entity("c", calls[1], queued=[calls[0], beside])
    assert not places.deliver(places.look("z", "y"))
    assert not places.refused
    places.deliver(places.look("c"))
    assert [way[-1] for way in places.refused] == [calls[0]]


def test_a_call_that_ended_meanwhile_breaks_the_circle() -> None:
    """Whatever call ends before the second round has seen it: no circle with it is found."""
    names = ("a", "b", "c")
    for gone in range(3):
        for hops in range(1, 5):
            places, calls = circle_of(*names)
            under_way = places.deliver(places.look("c"), hops)
            assert not places.refused
            caller = places.standing[names[gone]]
            later = Wait(f"node-{names[gone]}", 8, calls[gone].home, "T", calls[gone].entity, "go")
            # The caller has an answer or gave up, and waits for another call to the same entity.
            places.standing[names[gone]] = Standing(
                "T", caller.entity, ("outside", 2), caller.queued, [later]
            )
            called = places.standing[later.entity]
            places.standing[later.entity] = Standing(
                "T", called.entity, called.running, {(later.caller, later.request)}, called.calls
            )
            places.deliver(under_way)
            assert not any(calls[gone] in way for way in places.refused), (gone, hops)
            places.refused.clear()
            places.deliver(places.look())
            assert len(places.refused) == 1, "the new circle is found by a new probe"


def test_a_probe_of_other_calls_is_dropped() -> None:
    places, calls = circle_of("a", "b")
    forged = WaitProbe("T", "b", [calls[1], calls[0]], known=[calls[0], calls[1]])
    assert deadlock.follow(places.standing["b"], forged) == []
    stranger = wait("x", 9, "b")
    assert deadlock.follow(places.standing["b"], WaitProbe("T", "x", [stranger])) == []


def test_ways_and_branches_are_limited() -> None:
    places = Places()
    queued = wait("x", 1, "a")
    calls = [wait("a", number, "z") for number in range(100)]
    places.entity("a", *calls, queued=[queued])
    assert len(places.look("a")) == deadlock.WIDEST
    long = [wait("x", number, f"e{number}") for number in range(deadlock.LONGEST)]
    last = long[-1]
    places.entity(last.entity, wait(last.entity, 1, "q"), running=(last.caller, last.request))
    assert deadlock.follow(places.standing[last.entity], WaitProbe("T", "zz", long)) == []

"""What is played for each script. The first line of a play's text is the title of its script."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from sharding_app.entities.base import EventSourced
from sharding_app.protocol.messages import BeginHandOffAck
from tests.simulation.golden.scene import MOMENT_SECONDS, Basket, Cart, Couple, Scene, WishList, scene

Play = Callable[[Scene], None]
PLAYS: dict[str, Callable[[], str]] = {}
"""By the name of the script's file; each is played when it is called, and returns the script."""


def play(nodes: int, of: type[EventSourced] = Cart) -> Callable[[Play], Play]:
    def declare(acts: Play) -> Play:
        def script() -> str:
            with scene(nodes, of) as here:
                acts(here)
                return f"{inspect.getdoc(acts)}\n\n{here.script()}"

        PLAYS[acts.__name__] = script
        return acts

    return declare


@play(nodes=2)
def local_home(here: Scene) -> None:
    """Message to an unknown shard that belongs to the local region

    A node calls an entity whose shard has no home yet. The coordinator, which is in the same node
    here, writes the row of the shard and has the home start it. Only then does it tell the asker.
    The first message has the entity loaded from the journal.
    """
    here.part("n1 calls an entity of a shard that lives nowhere.")
    here.ask("alice", "book", by=here.nodes[0])


@play(nodes=2)
def first_message(here: Scene) -> None:
    """Message to an unknown shard, from a process that only asks

    The process makes itself known to the coordinator, so that it hears of moves from now on. Its
    message waits until the shard has a home. The answer leaves after the commit.
    """
    here.part("web calls an entity of a shard that lives nowhere.")
    here.ask("alice", "book")


@play(nodes=2)
def known_home(here: Scene) -> None:
    """Message to a shard whose home is known

    The region sends directly. The coordinator has no part in it, and no row of the shard is read:
    the append itself carries the epoch, which PostgreSQL compares.
    """
    here.ask("alice", "book")
    here.part("web calls an entity that it has called before.")
    here.ask("alice", "pen")
    here.part("web calls twice without waiting. The answers keep the order of the calls.")
    here.answered(here.call("alice", "add", "cup"), here.call("alice", "add", "hat"))


@play(nodes=2)
def ask_many(here: Scene) -> None:
    """Many entities are asked at once

    Each home gets the calls of its entities in one frame, and sends its answers in one. So one
    frame goes to and fro for each home, whatever the number of entities. Each call is an ordinary
    one: its entity may move, fail, or be late, and no other notices.
    """
    for entity in ("alice", "eve", "bob", "hal"):
        here.ask(entity, "book")
    here.part("web asks entities that live in both nodes.")
    here.ask_many("alice", "eve", "bob", "hal")


@play(nodes=2)
def remote_home(here: Scene) -> None:
    """Message to an unknown shard that belongs to a remote region

    The shard lives already, and the region of the asker does not know where. It asks the
    coordinator once, and sends to the home from then on.
    """
    here.ask("alice", "book")
    here.part("n2 calls an entity that lives in n1.")
    here.ask("alice", "pen", by=here.nodes[1])
    here.part("n2 calls again.")
    here.ask("alice", "cup", by=here.nodes[1])


@play(nodes=2)
def hand_off(here: Scene) -> None:
    """Hand-off of a shard

    An operator has a shard moved. The regions stop sending to it and say so. Then its home lets the
    command that runs end, hands back the one that waits, and says that it has stopped. Only after
    that does the row get the new home and the next epoch. The asker sends the waiting messages to
    the new home, in the order of the calls.
    """
    here.ask("alice", "book")
    here.part("An operator asks the coordinator to move the shard of alice to n2.")
    here.move("alice", here.nodes[1])
    here.until(lambda: here.row_of("alice").step == "handoff")
    here.at_once("web has not heard of it and calls twice. One command runs, the next one waits behind it.")
    calls = [here.call("alice", "add_slowly", "pen"), here.call("alice", "add", "cup")]
    here.until_said(BeginHandOffAck)
    here.at_once("web has heard that the shard moves. It keeps its next message.")
    calls.append(here.call("alice", "add", "hat"))
    here.answered(*calls)


@play(nodes=2)
def join(here: Scene) -> None:
    """A node joins, and a shard moves to it

    A row and two locks say that the node is there. A message each way says that it can be reached;
    only then is the node given shards. In its next round the coordinator moves a shard from the
    node that has most of them.
    """
    here.nodes[1].leave()
    here.until(lambda: not here.nodes[1].runs)
    for entity in ("alice", "carl", "erin"):
        here.ask(entity, "book")
    here.part("n2 starts.")
    here.start(here.nodes[1])
    here.until(lambda: any(row.epoch == 2 for row in here.world.server.cluster.shards.values()))


@play(nodes=2)
def failover(here: Scene) -> None:
    """Failover of a dead node

    A process is killed while it handles a command. Its connections end with it, and so do its
    locks: from that the coordinator sees that the process is dead. It removes the row of the node,
    raises the epoch of its shard, and says that the node is gone. The caller sends the command
    again, to the new home, because the command has an id.
    """
    here.live_in("alice", here.nodes[1])
    here.part("web calls an entity in n2. n2 is killed while the handler runs.")
    answer = here.call("alice", "add_slowly", "pen", "order-1")
    here.rest(MOMENT_SECONDS)
    here.nodes[1].crash()
    here.answered(answer)


@play(nodes=2)
def late_write(here: Scene) -> None:
    """The write of a former home arrives late

    A node is frozen while its append is on its way. The database role may not end sessions of other
    processes here, so the append arrives. It carries the epoch at which the node was the home. The
    row of the shard has a later one by then, and the fence refuses the append. The caller has sent
    the command to the new home, and it has taken effect once.
    """
    here.live_in("alice", here.nodes[1])
    node, world = here.nodes[1], here.world
    world.server.ends_others = False

    def freeze() -> float:
        node.process.pause()
        return 5.0

    here.part("web calls an entity in n2. n2 is frozen while its append is on its way for 5 seconds.")
    world.conditions.on_append[node.name] = freeze
    here.answered(here.call("alice", "add", "pen", "order-1"))
    here.rest()
    here.at_once("The append of n2 arrives.")
    here.rest(5.0)
    here.at_once("n2 goes on, and begins a second run.")
    node.process.resume()
    here.until(lambda: node.is_up and len(node.incarnations) > 1)


@play(nodes=2)
def lease_return(here: Scene) -> None:
    """A node loses its lease and comes back in time

    A process is frozen until its lease is over by its own clock. When it goes on it is suspended:
    it handles and answers nothing until a ping is answered again. Its row is still there, and its
    shard has the same home and epoch: it resumes with the objects that it has.
    """
    here.live_in("alice", here.nodes[1])
    node = here.nodes[1]
    here.part("n2 is frozen for 2.5 seconds. web calls meanwhile.")
    node.process.pause()
    here.rest(2.4)
    answer = here.call("alice", "add", "pen")
    here.rest(0.1)
    here.at_once("n2 goes on.")
    node.process.resume()
    here.answered(answer)


@play(nodes=2)
def lease_loss(here: Scene) -> None:
    """A node loses its lease, and comes back too late

    A node cannot reach PostgreSQL and loses both locks. Its row goes, its shard gets another home
    and a later epoch. When the server is in its reach again, the node begins a second run: with a
    row of its own, a greater age, and no shards.
    """
    here.live_in("alice", here.nodes[1])
    node = here.nodes[1]
    here.part("PostgreSQL is out of the reach of n2.")
    here.world.conditions.cut_off[node.name] = None
    here.until(lambda: here.row_of("alice").home != node.incarnations[0])
    here.part("web calls the entity that was in n2.")
    here.ask("alice", "pen")
    here.part("n2 reaches PostgreSQL again.")
    del here.world.conditions.cut_off[node.name]
    here.until(lambda: node.is_up and len(node.incarnations) > 1)


@play(nodes=2)
def server_restart(here: Scene) -> None:
    """PostgreSQL restarts

    All locks are gone, and no process is dead. The lock of the coordinator is free, so the oldest
    node is elected again, with a new term. It finds no lock of the other node, and does not take it
    for dead: its row names the former run of the server, and its lease is not over. The node comes
    back, finds its shard at the epoch that it knows, and goes on.
    """
    here.live_in("alice", here.nodes[1])
    node, server = here.nodes[1], here.world.server
    here.part("n2 is frozen while PostgreSQL restarts.")
    node.process.pause()
    server.stop()
    here.rest(0.2)
    server.start()
    here.until(lambda: server.cluster.coordinator.term == 2)
    here.rest(0.5)
    here.at_once("n2 goes on. web calls.")
    node.process.resume()
    here.ask("alice", "pen")


@play(nodes=3)
def coordinator_change(here: Scene) -> None:
    """Change of the coordinator

    The coordinator dies. The home of carl is known to the caller and goes on without one; the
    message for erin waits, since its shard has no home. The next oldest node gets the lock, raises
    the term before it reads any row, and says who it is. It tells the homes which shards they have,
    and answers the asker.
    """
    here.live_in("carl", here.nodes[1])
    here.part("n1, which coordinates and is home of no shard, is killed. web calls carl and erin.")
    here.nodes[0].crash()
    here.answered(here.call("carl", "add", "pen"), here.call("erin", "add", "pen"))


@play(nodes=3)
def late_decision(here: Scene) -> None:
    """The decision of a former coordinator arrives late

    The coordinator is frozen while its decision is on its way. The database role may not end
    sessions of other processes here, so the decision arrives. It carries the term in which the node
    was elected. The row of the coordinator has a later one by then, and the decision is refused.
    The next coordinator has given the shard a home.
    """
    node, world = here.nodes[0], here.world
    world.server.ends_others = False

    def freeze() -> float:
        node.process.pause()
        return 6.0

    here.part("web calls. n1 coordinates and is frozen while its decision is on its way for 6 seconds.")
    world.conditions.on_decide = freeze
    here.ask("alice", "book")
    here.rest()
    here.at_once("The decision of n1 arrives.")
    here.rest(5.0)


@play(nodes=2)
def retried_command(here: Scene) -> None:
    """A retried command

    A caller dies before it hears that its command is stored. It starts again and repeats the
    command with the same id. The home finds the id in the journal and gives the stored reply. No
    second event is written.
    """
    here.ask("alice", "book")
    here.part("web calls, and is killed when the event is stored.")
    here.call("alice", "add", "pen", "order-1")
    here.until(lambda: here.events_of("alice") == 2)
    here.web.crash()
    here.part("web starts again and repeats the command.")
    here.start_web()
    here.ask("alice", "pen", "order-1")


@play(nodes=2, of=Couple)
def durable_message(here: Scene) -> None:
    """A durable message, from its stage to its end

    A command sends a message to another entity. The row of the message is written by the append
    that writes the event. The home of the sender reads the row and delivers it. The append of the
    target deletes the row and writes the effect, in one transaction. So a second delivery finds no
    row, and stores nothing.
    """
    here.live_in("carl", here.nodes[1])
    here.ask("alice", "book")
    here.part("web calls alice, in n1, whose command sends a message to carl, in n2.")
    here.answered(here.call("alice", "add_for_both", "pen"))
    here.part("The same. n2 is killed when the row of the message is stored.")
    answer = here.call("alice", "add_for_both", "cup")
    here.until(lambda: bool(here.world.server.messages.rows))
    here.nodes[1].crash()
    here.answered(answer)
    here.until(lambda: not here.world.server.messages.rows)


@play(nodes=2, of=Basket)
def passivation(here: Scene) -> None:
    """An entity leaves the memory, and comes back

    The home drops an entity to which no message comes for three seconds. Its shard stays there, and
    no row changes. The next message has the entity loaded again. An entity may also ask for it: a
    message that waits meanwhile gets a new object, behind the commit of the former one.
    """
    here.ask("alice", "book")
    here.part("No message comes for alice.")
    here.rest(3.0)
    here.at_once("web calls again.")
    here.ask("alice", "pen")
    here.at_once("A command of alice asks to stop when it is over, and another one waits behind it.")
    here.answered(here.call("alice", "add_and_stop", "cup"), here.call("alice", "add", "hat"))


@play(nodes=2, of=WishList)
def remembered_restart(here: Scene) -> None:
    """A remembered entity after a restart of everything

    The row that remembers the entity is written before its first command is handled. After the
    restart the shard gets a home without a message, because it has such a row, and the home loads
    the entity.
    """
    here.part("web calls an entity of a type with `remember_entities`.")
    here.ask("alice", "book")
    here.part("All nodes are killed.")
    here.world.crash_all()
    here.part("n1 starts again. No message is sent to the entity.")
    here.start(here.nodes[0])


@play(nodes=2)
def leave(here: Scene) -> None:
    """A node leaves in order

    The row of the node says that it leaves. The coordinator hands over its shard; the node removes
    its row only after that, and ends its connections at last.
    """
    here.live_in("alice", here.nodes[1])
    here.part("n2 is told to end (SIGTERM).")
    here.nodes[1].leave()
    here.until(lambda: not here.nodes[1].runs)

"""Two ends of one link, and a layer between them that loses, repeats, reorders and delays."""

from collections import Counter

from sharding_app.protocol.codec import decode_frame
from sharding_app.protocol.link.link import Link, LinkLimits
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver

SMALL = LinkLimits(
    max_frame_bytes=400,
    max_frame_messages=8,
    max_message_bytes=1000,
    max_queue_messages=50,
    max_queue_bytes=4000,
    window_bytes=1600,
    window_frames=6,
)


def command(number: int, size: int = 5) -> Deliver:
    return Deliver("t", 1, 1, "e", number, "c", b"x" * size)


def answer(number: int, size: int = 5) -> Answer:
    return Answer(number, b"y" * size)


def timeless(messages: list[AnyMessage]) -> list[AnyMessage]:
    """The messages of the links' own tests were born at 0: take their time at the reader off
    again.
    """
    for each in messages:
        if isinstance(each, Deliver):
            each.born_ms = 0
    return messages


def lanes(messages: list[AnyMessage]) -> tuple[list[AnyMessage], list[AnyMessage]]:
    """Part commands from the rest: each keeps its order."""
    commands: list[AnyMessage] = [message for message in messages if isinstance(message, Deliver)]
    return commands, [message for message in messages if not isinstance(message, Deliver)]


class Side:
    """One end: its link, what was put into it, and what came out."""

    def __init__(self, name: str, peer: str, limits: LinkLimits) -> None:
        self.name, self.peer, self.limits = name, peer, limits
        self.stream = 1
        self.link = Link(name, peer, limits, self.stream)
        self.put: list[AnyMessage] = []
        self.got: list[AnyMessage] = []

    def say(self, message: AnyMessage) -> bool:
        taken = self.link.put(message)
        if taken:
            self.put.append(message)
        return taken

    def sleep_and_return(self) -> None:
        """Drop the link as an idle one is dropped, and make it anew."""
        position = self.link.position
        self.stream = self.link.stream + 1
        self.link = Link(self.name, self.peer, self.limits, self.stream, position)


class Wire:
    """Both sides, the frames under way between them, and the time."""

    def __init__(self, limits: LinkLimits = SMALL) -> None:
        self.a, self.b = Side("a" * 32, "b" * 32, limits), Side("b" * 32, "a" * 32, limits)
        self.to: dict[str, list[bytes]] = {self.a.name: [], self.b.name: []}
        self.now = 100.0
        self.counts: Counter[str] = Counter()

    def other(self, side: Side) -> Side:
        return self.b if side is self.a else self.a

    def flush(self, side: Side) -> int:
        frames = side.link.flush(self.now)
        self.to[side.peer] += frames
        return len(frames)

    def arrive(self, side: Side, index: int = 0, *, keep: bool = False) -> None:
        under_way = self.to[side.name]
        data = under_way[index] if keep else under_way.pop(index)
        side.got += timeless(side.link.receive(decode_frame(data), self.now, len(data)))

    def lose(self, side: Side, index: int = 0) -> None:
        del self.to[side.name][index]

    def run(self, seconds: float) -> None:
        """Let a perfect layer work for that time, waking each side at its deadlines only."""
        end = self.now + seconds
        while True:
            moved = True
            while moved:
                moved = False
                for side in (self.a, self.b):
                    moved |= self.flush(side) > 0
                for side in (self.a, self.b):
                    while self.to[side.name]:
                        self.arrive(side)
                        moved = True
            deadlines = [d for d in (self.a.link.deadline(), self.b.link.deadline()) if d is not None]
            if not deadlines or min(deadlines) > end:
                self.now = end
                return
            self.now = max(self.now, min(deadlines))

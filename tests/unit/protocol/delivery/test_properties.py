"""Whatever happens in whatever order, a shard's messages and timers go out in order, at their time,
and none is forgotten.

One machine beside the virtual server's table of messages, which says what is there. Answers,
changes of rows and pages are under way for as long as the story wants, and see the table at their
own moment.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from sharding_app.adapters.memory.message_rows import MessageRows, Stored
from sharding_app.ports.deliveries import MessageRow, Page, Taking
from sharding_app.protocol.delivery.deliveries import (
    FAILED,
    HORIZON_SECONDS,
    PARKED,
    PARTLY,
    REJECTED,
    UNKNOWN,
    UNREACHED,
    BackOff,
    Change,
    Deliveries,
    End,
    KeepAlone,
    Message,
    MoveOn,
    Park,
    Send,
    SetAside,
    Turn,
)
from sharding_app.protocol.delivery.memory import Memory
from sharding_app.protocol.delivery.recurrence import Recurrence
from sharding_app.runtime.delivery.rows import read, staged

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
TYPE, SHARD = 1, 0
OWNERS, TARGETS, KEYS = ("ann", "bob"), ("cat", "dog"), ("one", "two")
FAR = "dog"
"""This target's rows lie in another journal: what it takes it marks there."""
SOON = BackOff(failures=4, first_seconds=6.0, most_seconds=60.0, again_seconds=2.0, again_most_seconds=30.0)
LATE = BackOff(failures=4, first_seconds=12.0, most_seconds=60.0, again_seconds=2.0, again_most_seconds=30.0)
"""What has failed once leaves the memory."""
EVERY = Recurrence(seconds=3.0, missed="all").encode()
ROOM = 6
ROUNDS = 400
TICK = 1e-5

ACTIONS = st.tuples(
    st.sampled_from(
        [
            *(
                "send",
                "send",
                "send_unseen",
                "set",
                "set_often",
                "cancel",
                "page",
                "page",
                "wait",
                "wait_long",
            ),
            *("done", "done", "done", "lost", "taken_and_lost", "unreached", "failed", "rejected", "partly"),
            *("change", "change", "changed_and_lost"),
            *("new_home", "taken_late", "retry", "run", "discard"),
        ]
    ),
    st.integers(0, 11),
)

STEPS = (
    *("send", "send_unseen", "set", "set_often", "cancel"),
    *("new_home", "taken_late", "retry", "run", "discard"),
)
"""Actions that are methods of the story."""


class Story:
    """One shard: its rows, its machine, and what is under way between them."""

    def __init__(self, room: int, ahead: float, back_off: BackOff = SOON) -> None:
        self.now = 0.0
        self.ahead = ahead
        "So much later than the server's time is what the machine takes for it."
        self.table = MessageRows()
        self.memory = Memory(max_rows=room)
        self.numbers = count(1)
        self.back_off = back_off
        self.machine = Deliveries(self.memory, self.new_id, back_off, complete=True)
        self.sent: list[Message] = []
        "Deliveries without an answer."
        self.changes: list[Change | End] = []
        self.marks: dict[str, bool] = {}
        "Of messages that the far target has taken: whether its handler did not end."
        self.page: Page | None = None
        self.seqs: Counter[str] = Counter()
        self.effects: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.fired: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.not_before: dict[str, float] = {}
        "When each message may go out again."
        self.former: list[Message] = []
        "Deliveries of former homes: an answer reaches no machine."
        self.stored_at: dict[str, datetime] = {}
        self.retried: set[str] = set()
        "Messages that an operator has retried: those behind them may be through."

    def new_id(self) -> str:
        return f"m{next(self.numbers):04}"

    @property
    def late(self) -> float:
        """What the machine takes for the server's time."""
        return self.now + self.ahead

    @property
    def date(self) -> datetime:
        return BEGAN + timedelta(seconds=self.now)

    def clock(self) -> float:
        return BEGAN.timestamp() + self.late

    # -- What entities do --------------------------------------------------------------------------

    def send(self, number: int) -> None:
        """Commit some messages, of which the machine learns at once."""
        self.machine.staged(staged(self._store(number), self.date.timestamp()), self.clock())

    def send_unseen(self, number: int) -> None:
        """Commit some messages without an answer: the machine only learns that there are some."""
        self._store(number)
        self.machine.look()

    def _store(self, number: int) -> list[MessageRow]:
        owner, target = OWNERS[number % 2], TARGETS[number // 2 % 2]
        self.seqs[owner] += 1
        rows = [
            MessageRow(
                self.new_id(), TYPE, SHARD, owner, 1, self.seqs[owner], place, "shop.Target", target, "take", b"",
                on_failure="give_back" if number % 3 else None,
            )
            for place in range(1 + number // 4)
        ]  # fmt: skip
        for row in rows:
            self.table.put(Stored(row, self.date))
            self.stored_at[row.id] = self.date
        return rows

    def set(self, number: int, every: str | None = None) -> None:
        owner, key = OWNERS[number % 2], KEYS[number // 2 % 2]
        self.seqs[owner] += 1
        delay = (0.0, 1.0, 5.0, HORIZON_SECONDS + 5.0)[number % 4]
        row = MessageRow(
            self.new_id(), TYPE, SHARD, owner, 1, self.seqs[owner], 0, "shop.Owner", owner, "ring", b"",
            delay=delay, key=key, every=every,
        )  # fmt: skip
        self._end(owner, key)
        self.table.put(Stored(row, self.date + timedelta(seconds=delay)))
        self.machine.staged(staged([row], self.date.timestamp()), self.clock())

    def set_often(self, number: int) -> None:
        self.set(number, EVERY)

    def cancel(self, number: int) -> None:
        owner, key = OWNERS[number % 2], KEYS[number // 2 % 2]
        self._end(owner, key)
        self.machine.cancelled(owner, key)
        held = [each for each in self.machine.messages.values() if (each.entity, each.key) == (owner, key)]
        assert not any(each.id in self.table.rows for each in held)

    def _end(self, owner: str, key: str) -> None:
        former = self.table.timers.get((TYPE, owner, key))
        if former is not None:
            self.table.pop(former)

    # -- What the journal and the targets do -------------------------------------------------------

    def page_comes(self) -> None:
        """Read what the table has now, or hand the page over that was read before."""
        if self.page is None:
            room = self.machine.room_to_read(self.clock())
            if room:
                held = self.machine.read_begins()
                alone = self.machine.alone
                self.page = self.table.due([(TYPE, SHARD)], HORIZON_SECONDS, room, held, self.date, alone)
        else:
            found, self.page = self.page, None
            due = found.next_due.get((TYPE, SHARD))
            next_due = None if due is None else due.timestamp()
            aside = None if found.aside is None else [each[2:] for each in found.aside]
            self.machine.page(
                map(read, found.messages),
                more=bool(found.more),
                next_due=next_due,
                aside=aside,
                now=self.clock(),
            )

    def take(self, message: Message) -> str:
        """Let a delivery take effect if its row says so."""
        missing = self.table.missing([Taking(message.id)], self.date)
        if missing:
            return "gone" if missing[message.id] is None else "early"
        if message.id in self.marks:
            return "partly" if self.marks[message.id] else "taken"
        row = self.table.rows[message.id]
        far = message.target == FAR
        if message.again is not None:
            new, due = message.again
            self.table.replace(message.id, Stored(row.row._replace(id=new), datetime.fromtimestamp(due, UTC)))
        elif far:
            self.marks[message.id] = False
        else:
            self.table.pop(message.id)
        if message.key is None and message.target_type != "shop.Owner":
            done = self.effects.setdefault((message.entity, message.target), [])
            if message.id in self.retried:
                return "taken" if far else "done"
            assert message.order not in done, f"{message} took effect twice"
            assert not done or done[-1] < message.order, f"{message} took effect after a later one"
            done.append(message.order)
        return "taken" if far else "done"

    def answer(self, message: Message) -> None:
        outcome = self.take(message)
        if outcome == "done":
            self.machine.done(message, self.clock())
        elif outcome == "taken":
            self.machine.taken(message)
        elif outcome == "partly":
            self.machine.failed(message, PARTLY, None, self.clock())
        elif outcome == "gone":
            self.machine.gone(message, self.clock())
        else:
            seconds = (self.table.rows[message.id].due - self.date).total_seconds()
            self.machine.early(message, seconds, self.clock())

    def change(self, effect: Change | End) -> None:
        """Carry out a change of a row, if it is there."""
        message = effect.message
        stored = self.table.rows.get(message.id)
        if isinstance(effect, End):
            if stored is not None and not stored.parked and stored.due <= self.date:
                self.table.pop(message.id)
            self.machine.done(message, self.clock())
        elif stored is None or stored.parked:
            self.machine.look()
            self.machine.over(message, self.clock())
        elif isinstance(effect, SetAside):
            due = self.date + timedelta(seconds=effect.pause)
            self.table.put(stored._replace(due=due, failures=effect.failures, error="failed"))
            self.machine.set_aside(message, effect.failures, effect.pause, self.clock())
        elif isinstance(effect, KeepAlone):
            self.table.put(stored._replace(due=self.date, error="no answer"))
            self.machine.kept_alone(message, self.clock())
        elif isinstance(effect, Park):
            self.table.put(stored._replace(parked=True, error="failed"))
            self.machine.over(message, self.clock())
        elif isinstance(effect, MoveOn):
            assert message.again is not None
            self.table.replace(
                message.id,
                Stored(
                    stored.row._replace(id=message.again[0]), datetime.fromtimestamp(message.again[1], UTC)
                ),
            )
            self.machine.moved_on(message, self.clock())
        elif isinstance(effect, Turn):
            row = stored.row._replace(
                id=effect.new, target_type="shop.Owner", target=message.entity, command="give_back", on_failure=None
            )  # fmt: skip
            self.table.replace(message.id, Stored(row, self.date))
            self.machine.turned(
                message, staged([row._replace(due=self.date)], self.date.timestamp())[0], self.clock()
            )

    # -- What operators and other nodes do ---------------------------------------------------------

    def new_home(self, number: int) -> None:
        """Start the shard anew on another node. What the former home has sent is still on its way;
        what it wants to change is refused.
        """
        self.former += self.sent
        self.sent, self.changes, self.page = [], [], None
        self.not_before = {}
        self.machine.close()
        self.machine = Deliveries(self.memory, self.new_id, self.back_off, complete=False)

    def taken_late(self, number: int) -> None:
        if self.former:
            self.take(self.former.pop(number % len(self.former)))

    def retry(self, number: int) -> None:
        """Let an operator retry a parked message. The home may not learn of it."""
        parked = [each for each in self.table.rows.values() if each.parked]
        if parked:
            self._run(parked[number % len(parked)], told=number % 3 > 0)

    def run(self, number: int) -> None:
        waiting = [each for each in self.table.rows.values() if not each.parked and each.row.key is None]
        if waiting:
            self._run(waiting[number % len(waiting)], told=number % 3 > 0)

    def _run(self, found: Stored, *, told: bool) -> None:
        message = found.row.id
        at = self.date if found.row.key is not None else self.stored_at.get(message, found.due)
        self.table.put(found._replace(parked=False, failures=0, error="", due=min(found.due, at)))
        if found.parked:
            self.retried.add(message)
        self.not_before.pop(message, None)
        if told:
            self.machine.look()
            self.machine.hurry(message, self.clock())

    def discard(self, number: int) -> None:
        if self.table.rows:
            message = list(self.table.rows)[number % len(self.table.rows)]
            self.table.pop(message)

    # -- The story ---------------------------------------------------------------------------------

    def act(self, action: str, number: int) -> None:
        if action in STEPS:
            getattr(self, action)(number)
        elif action == "page":
            self.page_comes()
        elif action.startswith("wait"):
            self.now += number / 3 if action == "wait" else number * 2.0
            self.machine.tick(self.clock())
        elif action.startswith("change"):
            if self.changes:
                effect = self.changes.pop(number % len(self.changes))
                if action == "changed_and_lost":  # it is tried until an answer comes
                    self.changes.append(effect)
                else:
                    self.change(effect)
        elif self.sent:
            self._ends(action, self.sent.pop(number % len(self.sent)))
        self.check()

    def _ends(self, action: str, message: Message) -> None:
        if action == "done":
            self.answer(message)
            return
        if message.id in self.marks and action in ("failed", "rejected", "partly"):
            self.answer(message)  # the target looks for a mark before it says so
            return
        if action in ("taken_and_lost", "partly"):
            taken = self.table.rows.get(message.id)
            if action == "partly" and taken is not None and message.target == FAR:
                if not (taken.parked or taken.due > self.date):
                    self.marks[message.id] = True
                self.answer(message)
                return
            if action == "taken_and_lost":
                self.take(message)
            elif taken is not None and not taken.parked:
                self.table.put(taken._replace(parked=True, error="partly"))
        why = {"failed": FAILED, "rejected": REJECTED, "unreached": UNREACHED, "partly": PARKED}.get(
            action, UNKNOWN
        )
        before, gone = message.failures, message.id not in self.machine.messages
        self.machine.failed(message, why, None, self.clock())
        if gone or why is PARKED:
            return
        if why in (UNKNOWN, UNREACHED):
            assert message.failures == before, "it was not the target that failed"
            self.not_before[message.id] = self.late + min(2.0 * 2.0 ** (message.tries - 1), 30.0)

    def check(self) -> None:
        """Take the machine's effects; check what it sends, and what it holds."""
        effects, self.machine.out = self.machine.out, []
        for effect in effects:
            message = effect.message
            if not isinstance(effect, Send):
                self.changes.append(effect)
                if isinstance(effect, SetAside):
                    assert effect.failures <= message.failures + 1 < self.back_off.failures + 1
                continue
            assert message.due <= self.clock() + TICK, "it goes out before its time"
            assert self.late + TICK >= self.not_before.get(message.id, self.late), (
                "it goes out before its pause"
            )
            self.sent.append(message)
        held = self.machine.messages.values()
        at_work = Counter(
            (each.entity, each.target_type, each.target)
            for each in held
            if each.key is None and each.state.name in ("SENT", "WRITING")
        )
        assert not [pair for pair, times in at_work.items() if times > 1], "two of one pair are under way"
        # Beside those that it holds, some may wait for the page that is being read.
        assert len(held) <= self.memory.rows <= max(self.memory.max_rows, 1), "more than there is room for"
        assert self.memory.rows == len(held) or self.page is not None

    def calm_down(self) -> None:
        """Answer everything from now on: nothing is left in the end."""
        self.machine.look()  # as for what is overdue
        for _ in range(ROUNDS):
            self.check()
            if not any(not each.parked and each.row.every is None for each in self.table.rows.values()):
                return
            while self.changes or self.sent:
                while self.changes:
                    self.change(self.changes.pop(0))
                while self.sent:
                    self.answer(self.sent.pop(0))
                self.check()
            if self.page is not None or self.machine.room_to_read(self.clock()):
                self.page_comes()
                continue
            wake_at = self.machine.wake_at
            if wake_at is not None:
                self.now = max(self.now, wake_at - BEGAN.timestamp() - self.ahead) + TICK
                self.machine.tick(self.clock())
                wake_at = self.machine.wake_at
                idle = not self.machine.out and not self.machine.room_to_read(self.clock())
                assert not idle or wake_at is None or wake_at > self.clock(), "it wakes up for nothing"
        left = [each.row for each in self.table.rows.values() if not each.parked]
        raise AssertionError(f"forgotten: {left}")


@given(
    st.lists(ACTIONS, max_size=60),
    st.sampled_from([1, 2, ROOM, 100]),
    st.sampled_from([0.0, -0.5, 0.2]),
    st.sampled_from([SOON, LATE]),
)
def test_whatever_happens_messages_go_out_in_order_in_time_and_none_is_forgotten(
    actions: list[tuple[str, int]], room: int, ahead: float, back_off: BackOff
) -> None:
    story = Story(room, ahead, back_off)
    for action, number in actions:
        story.act(action, number)
    story.calm_down()

"""Commands on their way to their homes: each becomes an envelope, and waits here while the link has no room for it."""

from collections.abc import Callable

from sharding_app.core.command_ids import id_of_ours
from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import AnyMessage, Deliver
from sharding_app.core.parcel import Parcel


class Outgoing:
    def __init__(
        self,
        me: Incarnation,
        put: Callable[[Incarnation, AnyMessage], bool],
        not_sent: Callable[[Parcel], None],
    ) -> None:
        """`not_sent` is told of a command whose caller gave up before the link had room: its home will never see it."""
        self.blocked: dict[Incarnation, list[Parcel]] = {}
        "Homes whose link takes nothing more, and what waits for it, in its order."
        self._me = me
        self._put = put
        self._not_sent = not_sent

    def send(self, parcel: Parcel, home: Incarnation, now: float) -> bool:
        """Give a command to the link. False: it has no room."""
        command_id = parcel.command_id
        if parcel.attempt > 1 and not command_id:
            command_id = id_of_ours(self._me, parcel.request)
        deadline = 0 if parcel.reply is None else int(parcel.deadline * 1000) or 1
        message = Deliver(
            parcel.type, parcel.shard, parcel.epoch, parcel.entity, parcel.request, parcel.command, parcel.args,
            command_id, parcel.attempt, int(parcel.born * 1000), deadline, parcel.chain, parcel.trace,
        )  # fmt: skip
        return self._put(home, message)

    def forward(self, parcel: Parcel, now: float) -> None:
        """Send a command to its home, behind those that wait for the link."""
        home = parcel.home
        if home is None:
            return
        if home in self.blocked:
            self.blocked[home].append(parcel)
        elif not self.send(parcel, home, now):
            self.blocked[home] = [parcel]

    def tick(self, now: float) -> None:
        """Send what links had no room for."""
        for target in list(self.blocked):
            self._unblock(target, now)

    def let_go(self, parcels: list[Parcel]) -> None:
        """Nothing waits for these any more: they must not wait here either, where no limit counts them."""
        given_up = set(parcels)
        for home in self.blocked.keys() & {each.home for each in parcels}:
            self.blocked[home] = [each for each in self.blocked[home] if each not in given_up]

    def gone(self, incarnation: Incarnation) -> list[Parcel]:
        """Return what has waited for that process: none of it was sent."""
        return [each for each in self.blocked.pop(incarnation, ()) if each.home == incarnation]

    def _unblock(self, target: Incarnation, now: float) -> None:
        waiting, late = self.blocked.pop(target), []
        for number, parcel in enumerate(waiting):
            if parcel.home != target:
                continue
            if parcel.told and parcel.reply is not None:
                late.append(parcel)
            elif not self.send(parcel, target, now):
                self.blocked[target] = waiting[number:]
                break
        for parcel in late:
            self._not_sent(parcel)

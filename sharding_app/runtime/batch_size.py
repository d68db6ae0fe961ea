"""The size of the next batch: a row that the server does not take must not hold up those that it is written with."""


class BatchSize:
    """One row after an error that the server answered, then twice as many after each success."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.now = most

    def taken(self) -> None:
        self.now = min(self.now * 2, self._most)

    def refused(self) -> None:
        self.now = 1

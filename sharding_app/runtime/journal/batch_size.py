"""The size of the next batch. A row that the server refuses must not hold up the rows beside it."""


class BatchSize:
    """One row after an error that the server answered with; doubled after each success."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.now = most

    def taken(self) -> None:
        self.now = min(self.now * 2, self._most)

    def refused(self) -> None:
        self.now = 1

"""Hill climbing: finds the size of the admission window with the highest rate of hits."""


class HillClimbing:
    """Takes one step after each `adjust_after` accesses: on as before if the hit rate has not
    fallen, else back.

    Steps become smaller until the rate changes by `restart_threshold`: then the search starts
    again.
    """

    def __init__(
        self, adjust_after: int, *, initial_step: float, restart_threshold: float, step_decay: float
    ) -> None:
        self._adjust_after = adjust_after
        self._initial = initial_step
        self._restart = restart_threshold
        self._decay = step_decay
        self._step = -initial_step
        self._rate = 0.0
        self._hits = self._accesses = 0

    def record(self, *, hit: bool) -> float:
        """Count one access; return the change of the window's proportion, mostly 0."""
        self._accesses += 1
        self._hits += hit
        if self._accesses < self._adjust_after:
            return 0.0
        rate = self._hits / self._accesses
        change = rate - self._rate
        taken = self._step if change >= 0 else -self._step
        if abs(change) >= self._restart:
            self._step = self._initial if taken >= 0 else -self._initial
        else:
            self._step = taken * self._decay
        self._rate = rate
        self._hits = self._accesses = 0
        return taken

"""Whether a job has ended because the process has no memory left."""


def out_of_memory(error: BaseException) -> bool:
    """Return whether one of the errors that have ended a job is a MemoryError."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(out_of_memory, error.exceptions))
    return isinstance(error, MemoryError)

"""The progress of a command, on standard error: one line redrawn on a terminal, else a line a
step.
"""

from django.core.management.base import OutputWrapper

CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Create it. `quiet` prints no progress, as with --json."""

    def __init__(self, stream: OutputWrapper, *, quiet: bool = False) -> None:
        self._stream = stream
        self._redraws = stream.isatty()
        self._quiet = quiet and not self._redraws
        self._shown = ""

    def __call__(self, text: str) -> None:
        if self._quiet or text == self._shown:
            return
        self._shown = text
        self._write(f"{CLEAR_LINE}{text} ..." if self._redraws else f"{text}\n")

    def done(self) -> None:
        """Clear the line on a terminal."""
        if self._redraws and self._shown:
            self._write(CLEAR_LINE)
        self._shown = ""

    def _write(self, text: str) -> None:
        # As it is: this stream colours what is written to it as an error, and this is none.
        self._stream.write(text, str, ending="")
        self._stream.flush()

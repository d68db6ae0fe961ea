"""Facts of the operating system about processes and the machine."""

import os
import platform
import subprocess
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        # No /proc, as on macOS.
        shown = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
        )
        return int(shown.stdout) * 1024


def describe() -> str:
    """Describe the machine in one line, for later readers of the figures."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {platform.python_implementation()} "
        f"{platform.python_version()}, load {load}"
    )

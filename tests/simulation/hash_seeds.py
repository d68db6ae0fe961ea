"""A program in two processes whose strings hash differently: what comes out of it must not depend
on that.
"""

import subprocess
import sys


def outputs(program: str) -> set[str]:
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": number, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }

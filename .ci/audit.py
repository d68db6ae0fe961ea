"""Audit the pins for known vulnerabilities.

    python .ci/audit.py [--may-be-out-of-reach] requirements.txt

A vulnerability fails, and so does a pin about which the advisory service said nothing: an audit
that looked at nothing has found nothing. Behind a mirror without advisories,
`--may-be-out-of-reach` lets what was not audited pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

OUT_OF_REACH = ("ConnectionError", "ServiceError", "Connection refused", "timed out", "Max retries")


def main() -> int:
    """Run pip-audit and judge its answer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--may-be-out-of-reach", action="store_true")
    options = parser.parse_args()
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--format=json"]
    command += ["--progress-spinner=off", f"--requirement={options.file}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(answer.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(answer.stderr)
        if not any(word in answer.stderr for word in OUT_OF_REACH):
            return 1
        print("NOT AUDITED: the advisory service did not answer.")
        return 0 if options.may_be_out_of_reach else 1
    skipped = [each for each in packages if "skip_reason" in each]
    if skipped:
        print(f"NOT AUDITED: {', '.join(each['name'] for each in skipped)}: {skipped[0]['skip_reason']}")
    found = [(each, vulnerability) for each in packages for vulnerability in each.get("vulns", [])]
    for each, vulnerability in found:
        fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
        print(f"{each['name']} {each['version']}: {vulnerability['id']}, fixed in {fixed}")
    audited = len(packages) - len(skipped)
    print(f"{audited} of {len(packages)} packages audited, {len(found)} vulnerabilities.")
    unknown = not packages or bool(skipped)
    return 1 if found or (unknown and not options.may_be_out_of_reach) else 0


if __name__ == "__main__":
    sys.exit(main())

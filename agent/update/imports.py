"""Imports every runtime that is installed, each in a process of its own: `python -m edgemeter.agent.update.imports`.

Prints what does not import, in one line, and ends with status 1 where there is something. A library comes before those that need it.
"""

import sys

from edgemeter.agent.doctor.checks import RUNTIMES, check_software


def main() -> int:
    """Return the exit status."""
    wrong = [finding for finding in check_software() if finding.state == "bad" and finding.name in RUNTIMES]
    if wrong:
        sys.stdout.write(f"{'; '.join(finding.what for finding in wrong)}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

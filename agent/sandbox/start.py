"""`python -m edgemeter.agent.sandbox.start POLICY MODULE ARGUMENTS`: sets up the sandbox of this process, then runs the module in it.

Nothing heavy is imported before: threads that are older than the sandbox would be outside.
"""

import time

STARTED_NS = time.monotonic_ns()

import runpy  # noqa: E402 - the clock is read before anything is imported
import sys  # noqa: E402

import msgspec  # noqa: E402

from edgemeter.agent.base.errors import EdgemeterError  # noqa: E402
from edgemeter.agent.sandbox.confine import confine  # noqa: E402
from edgemeter.agent.sandbox.policy import SandboxPolicy  # noqa: E402


def main() -> None:
    """Run the module that the arguments name, as `python -m` does."""
    policy, module, *arguments = sys.argv[1:]
    try:
        confine(msgspec.json.decode(policy, type=SandboxPolicy), STARTED_NS)
    except EdgemeterError as error:
        sys.exit(f"edgemeter: {error}")
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

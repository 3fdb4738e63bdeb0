"""Runs pip as on another machine: `python pip_for_target.py MARKERS ARGUMENT...`.

`wheels.py` starts it as a script. `pip download --platform ...` selects wheels by the target's tags
but evaluates the markers of requirements by this machine's Python and system (pypa/pip #11664): a
requirement for `python_version < '3.12'` is then evaluated for the wrong side. Here the target's
markers apply, from `MARKERS` in JSON. Uv evaluates them correctly, but does not know glibc versions
between 2.17 and 2.28, which LiteRT's wheels use.
"""

import json
import sys
from importlib import import_module
from typing import Any


def main(markers: str, *arguments: str) -> int:
    """Return pip's exit status; raises SystemExit if this pip ignores the markers of a target."""
    target: dict[str, str] = json.loads(markers)
    # Pip's own copy of `packaging`.
    packaging: Any = import_module("pip._vendor.packaging.markers")
    defaults = packaging.default_environment()
    packaging.default_environment = lambda: {**defaults, **target}
    probe = (
        f"python_version == '{target['python_version']}' and platform_machine == "
        f"'{target['platform_machine']}'"
    )
    if not packaging.Marker(probe).evaluate():
        sys.exit(
            "this pip does not accept the markers of another machine: install another "
            "version of pip"
        )
    pip: Any = import_module("pip._internal.cli.main")
    status: int = pip.main(list(arguments))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

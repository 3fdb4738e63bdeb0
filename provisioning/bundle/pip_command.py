"""Where pip is: that of this Python, else one that uv brings."""

import shutil
import sys
from importlib.util import find_spec

from edgemeter.agent.errors import UnavailableError


def pip_command() -> list[str]:
    """Return the command that pip's arguments follow.

    Raises:
        UnavailableError: there is neither pip nor uv.
    """
    return [*python_with_pip(), "-m", "pip"]


def python_with_pip() -> list[str]:
    """Return the command of a Python that can import pip.

    Raises:
        UnavailableError: there is neither pip nor uv.
    """
    if find_spec("pip") is not None:
        return [sys.executable]
    uv = shutil.which("uv")
    if uv is None:
        message = "building a bundle needs pip or uv: `python3 -m ensurepip`, or install uv"
        raise UnavailableError(message)
    return [uv, "run", "--quiet", "--no-project", "--with", "pip", "python"]

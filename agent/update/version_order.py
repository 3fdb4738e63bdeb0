"""Which of two versions is the newer one."""

import re

from edgemeter.agent.errors import ConfigError

# Source: PEP 440, without epochs, which are never published here.
_FORM = re.compile(r"(\d+(?:\.\d+)*)(?:(a|b|rc)(\d+))?(?:\.post(\d+))?(?:\.dev(\d+))?(?:\+[A-Za-z0-9.]+)?")
_STAGES = {"a": 0, "b": 1, "rc": 2, None: 3}


def key(version: str) -> tuple[tuple[int, ...], int, int, int, float]:
    """Return what versions are compared by; a local part (`+...`) does not count.

    Raises:
        ConfigError: it is no version.
    """
    parts = _FORM.fullmatch(version)
    if parts is None:
        message = f"{version!r} is no version that can be compared: write it like 1.2.3"
        raise ConfigError(message)
    numbers, stage, stage_number, post, dev = parts.groups()
    release = [int(number) for number in numbers.split(".")]
    while release and release[-1] == 0:
        release.pop()
    rank = -1 if dev is not None and stage is None and post is None else _STAGES[stage]
    return tuple(release), rank, int(stage_number or 0), -1 if post is None else int(post), float("inf") if dev is None else int(dev)

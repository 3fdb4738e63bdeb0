"""Defaults from the environment, the same for the functions as for the commands."""

import os
from pathlib import Path
from typing import Any


def unset_options() -> dict[str, Any]:
    """Return the options of a command that name this device, its sensors and its configuration, as they are where none is given."""
    names = {
        name: os.environ.get(f"EDGEMETER_{name.upper()}") or None
        for name in ("device", "fleet", "power", "config")
    }
    return {**names, "config": names["config"] and Path(names["config"]), "broker": None}

"""Defaults from the environment, the same for the functions as for the commands."""

import os
from pathlib import Path
from typing import Any


def config_file() -> Path | None:
    """Return the configuration file that the environment names; None: one of the usual places."""
    named = os.environ.get("EDGEMETER_CONFIG")
    return Path(named) if named else None


def unset_options() -> dict[str, Any]:
    """Return the options of a command that name this device and its sensors, as they are where none is given."""
    names = {name: os.environ.get(f"EDGEMETER_{name.upper()}") or None for name in ("device", "fleet", "power")}
    return {**names, "config": config_file(), "broker": None}

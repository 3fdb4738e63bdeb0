"""Imports the attribute that `package.module:attr` or `FILE.py:attr` names."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, one_line


def import_attribute(address: str) -> Any:
    """Return what an address names; raises ConfigError."""
    name, _, attribute = address.rpartition(":")
    try:
        if name.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(name).stem, Path(name).resolve())
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(name)
        return getattr(module, attribute)
    except Exception as error:
        raise ConfigError(f"cannot import {address!r}: {one_line(error)}") from error

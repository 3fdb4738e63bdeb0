"""The models that a command names: paths, or names of the catalogue."""

from importlib import import_module
from pathlib import Path


def model_path(model: str | Path) -> Path:
    """Return the file of a model: the path itself, or where the shipped, fetched or added model of that name is.

    Raises:
        ConfigError: a name is unknown, or its model is not on this machine.
    """
    path = Path(model).expanduser()
    # A `{precision}` is filled in later.
    if path.exists() or path.parent != Path() or "{" in path.name:
        return path
    # By name: the agent imports nothing of the catalogue until a name is given.
    found: Path = import_module("edgemeter.models.fetch.named").named_model(path.name)
    return found

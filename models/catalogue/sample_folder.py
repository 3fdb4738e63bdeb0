"""The folder that the documentation's pages use: shipped models under plain names, photographs and their annotations."""

import shutil
import tempfile
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER

SCENES = Path(__file__).parents[1] / "scenes"
SHIPPED_BY_NAME = {
    "model.onnx": "edgemeter-shapes_fp32.onnx",
    "model.tflite": "edgemeter-shapes_fp32.tflite",
    "model_int8.tflite": "edgemeter-shapes_int8.tflite",
}


def write_sample(folder: Path) -> list[str]:
    """Write the folder, whole or not at all, and return the names in it.

    Raises:
        ConfigError: the folder is there and not empty, or cannot be written.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{str(folder)!r} is there already: name a new folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            draft = Path(name) / folder.name
            shutil.copytree(SCENES / "images", draft / "photos")
            shutil.copy(SCENES / "annotations.json", draft / "instances.json")
            for plain, shipped in SHIPPED_BY_NAME.items():
                shutil.copy(SHIPPED_FOLDER / shipped, draft / plain)
                shutil.copy(SHIPPED_FOLDER / f"{shipped}.toml", draft / f"{plain}.toml")
            draft.rename(folder)
    except (OSError, shutil.Error) as error:
        raise ConfigError(f"cannot write the sample to {str(folder)!r}: {error}; choose another folder") from error
    return sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())

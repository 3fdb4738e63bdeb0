"""Pictures for the models that ship: their scenes are here to be scored on, and others of the same kind can be drawn to calibrate with."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edgemeter.agent.dataset import Dataset, open_folder
from edgemeter.models import scene_files
from edgemeter.models.progress import Tell
from edgemeter.models.scene import Stream

CALIBRATION_SCENES = 200


def scenes() -> Dataset:
    """Return the validation scenes that ship, with their ground truth."""
    found = open_folder(scene_files.FOLDER / scene_files.IMAGES, scene_files.FOLDER / scene_files.ANNOTATIONS)
    return replace(found, name="shipped scenes")


@contextmanager
def calibration(tell: Tell) -> Iterator[Dataset]:
    """Yield scenes of the calibration stream, drawn into a folder that goes afterwards; none of them is scored on."""
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as name:
        folder = Path(name)
        scene_files.write(folder, scene_files.SHIPPED_SEED, CALIBRATION_SCENES, tell, Stream.CALIBRATION)
        yield replace(open_folder(folder / scene_files.IMAGES), name="scenes of the calibration stream")

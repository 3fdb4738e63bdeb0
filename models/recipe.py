"""What a build of the shipped models depends on."""

from dataclasses import dataclass

from edgemeter.models import scene_files

NAME = "edgemeter-shapes"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The same recipe with the same library versions on the same kind of processor makes the same models."""

    seed: int = scene_files.SHIPPED_SEED
    steps: int = 8_000
    threads: int = 1
    scenes: int = scene_files.SHIPPED_COUNT

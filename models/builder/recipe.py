"""How the shipped detector is made, and what is needed to make it."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from edgemeter.agent.base.errors import UnavailableError

MODEL_NAME = "edgemeter-shapes"
# The seed of the shipped scenes; its training and calibration streams share no scene with them.
SHIPPED_SEED = 1
SHIPPED_COUNT = 112
# Pixels from one cell of the detector's two grids to the next.
STRIDES = (8, 16)
# By import name: what the extra `convert` brings.
NEEDED = ("torch", "litert_torch", "ai_edge_quantizer", "ai_edge_litert", "onnx", "onnxruntime", "onnxscript", "PIL")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The same recipe with the same library versions on the same kind of processor makes the same models."""

    seed: int = SHIPPED_SEED
    steps: int = 8_000
    threads: int = 1
    scenes: int = SHIPPED_COUNT


def require(modules: Sequence[str]) -> None:
    """Raise UnavailableError unless all modules are installed."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise UnavailableError(f"making the models needs {', '.join(missing)}: pip install 'edgemeter[convert]'")

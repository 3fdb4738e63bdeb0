"""Parity: what a model file scores on the scenes, measured by loading that very file as `edgemeter run` does."""

from pathlib import Path

from edgemeter.agent import runtimes, task
from edgemeter.agent.dataset import Dataset
from edgemeter.agent.engine.suites import runtime_for
from edgemeter.agent.errors import MeasurementError
from edgemeter.agent.recognition.card import Card
from edgemeter.agent.records import Accuracy
from edgemeter.models.progress import Tell

# How far a file may score from the network it was exported from, by its precision.
AP_DRIFT_MAX = {"fp32": 0.002, "int8": 0.03}


def accuracy(model: Path, about: Card, data: Dataset, tell: Tell) -> tuple[Accuracy, str]:
    """Return what the file scores, and the package and version that ran it.

    Raises:
        EdgemeterError: its runtime is not installed, or the file, its card or the data do not fit each other.
        MeasurementError: the data has no ground truth.
    """
    runtime = runtimes.create(runtime_for(model))
    try:
        loaded = runtime.load(model, runtimes.Options(threads=1))
        work = task.create(about, loaded, data)
        for index in range(len(data.files)):
            runtime.bind(work.prepare(index))()
            work.answer(index, runtime.outputs())
            tell(f"scoring {model.name}", index + 1, len(data.files))
    finally:
        runtime.close()
    found = work.score()
    if found is None:
        message = f"{model.name!r} cannot be scored on {data.name!r}: the data set has no ground truth; give its annotations"
        raise MeasurementError(message)
    return found, f"{loaded.package} {loaded.version}"


def figures(model: Path, about: Card, data: Dataset, tell: Tell) -> dict[str, str | int | float]:
    """Return what the file scores as a card's table `accuracy`; raises as `accuracy` does."""
    found, runtime = accuracy(model, about, data, tell)
    parts = {"value": found.value, "ap50": found.detail.get("ap50"), "ap75": found.detail.get("ap75")}
    return {
        "metric": found.metric,
        **{name: round(value, 4) for name, value in parts.items() if value is not None},
        "images": found.images,
        "dataset_sha256": found.dataset_sha256,
        "runtime": runtime,
    }

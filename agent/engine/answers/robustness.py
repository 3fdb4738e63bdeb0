"""Accuracy on corrupted photographs: the same model and data, every corruption in five severities. Nothing is timed here."""

import dataclasses
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edgemeter.agent import records, task
from edgemeter.agent.dataset import Dataset
from edgemeter.agent.engine import job
from edgemeter.agent.engine.loading import Model
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.vision import corruptions, photograph

Emit = Callable[[job.Event], None]


def robustness(model: Model, names: Sequence[str], seed: int, clean: records.Accuracy, emit: Emit) -> records.Robustness:
    """Return the accuracy under each of these corruptions; `clean` is that on the photographs as they are.

    Raises:
        ConfigError: a corruption is unknown, or a photograph cannot be read.
    """
    wanted = corruptions.names_of(names)
    if model.card is None or model.data is None:
        message = "corruptions need photographs with ground truth: give --images and --annotations"
        raise ConfigError(message)
    emit(job.Phase(name="corruption"))
    total = len(wanted) * len(corruptions.SEVERITIES) * len(model.data.files)
    identities = [hashlib.sha256(path.read_bytes()).hexdigest() for path in model.data.files]
    found: list[records.Corruption] = []
    done = 0
    for name in wanted:
        values: list[float | None] = []
        for severity in corruptions.SEVERITIES:
            with tempfile.TemporaryDirectory() as folder:
                corrupted = _files(model.data, Path(folder))
                work = task.create(model.card, model.loaded, corrupted)
                for index, identity in enumerate(identities):
                    pixels = np.asarray(photograph.read(model.data.files[index]))
                    photograph.write(corruptions.corrupt(pixels, name, severity, seed, identity), corrupted.files[index])
                    _answer(model, work, index)
                    corrupted.files[index].unlink()
                    done += 1
                    emit(job.Progress(done=done, total=total))
            scored = work.score("value")
            values.append(None if scored is None else scored.value)
        found.append(records.Corruption(name=name, values=tuple(values)))
    mean = _mean([value for one in found for value in one.values])
    drop = None if mean is None else clean.value - mean
    return records.Robustness(seed=seed, mean_value=mean, drop_value=drop, corruptions=tuple(found))


def _files(data: Dataset, folder: Path) -> Dataset:
    """Return the data set with a file of the folder in place of each photograph: written before it is read, and removed after.

    So corruption works for every task and every way to prepare inputs. A BMP loses nothing and costs little.
    """
    return dataclasses.replace(data, files=tuple(folder / f"{place}.bmp" for place in range(len(data.files))))


def _answer(model: Model, work: task.Task, index: int) -> None:
    model.runtime.bind(work.prepare(index))()
    work.answer(index, model.runtime.outputs())


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None

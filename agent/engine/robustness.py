"""The accuracy on corrupted items: each is replaced by a file that holds it corrupted, so that this works for every task."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edgemeter.agent.audio.corruptions import corrupt_recording
from edgemeter.agent.audio.recordings import read_recording, write_wav
from edgemeter.agent.base.corruption_draw import SEVERITIES
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import gain
from edgemeter.agent.contract.case_settings import CORRUPTIONS, EVERY_CORRUPTION
from edgemeter.agent.contract.record_accuracy import Accuracy, Corruption, Robustness
from edgemeter.agent.datasets.items import Item
from edgemeter.agent.tasks import Task
from edgemeter.agent.tasks.photo_items import photo_of
from edgemeter.agent.text.typos import with_typos
from edgemeter.agent.vision import corruptions, photograph

# Which corruption, how strong (1 to 5), and what its random numbers derive from: the seed and the item's hash.
CorruptionDraw = tuple[str, int, int, str]


# By kind of item: the suffix of the file. A BMP and a WAV of floats lose nothing and cost little.
_SUFFIXES = {"image": ".bmp", "audio": ".wav", "text": ".txt"}


def _write(item: Item, draw: CorruptionDraw, path: Path) -> None:
    if item.kind == "image":
        photograph.write(corruptions.corrupt(np.asarray(photo_of(item)), *draw), path)
    elif item.kind == "audio":
        write_wav(path, corrupt_recording(read_recording(item.file), *draw))
    else:
        path.write_text(with_typos(item.read_text(), *draw), encoding="utf-8", newline="")


def robustness(
    items: Sequence[Item],
    names: Sequence[str],
    seed: int,
    clean: Accuracy,
    start: Callable[[tuple[Item, ...]], Task],
    predict: Callable[[Task, int], object],
    progress: Callable[[int, int], None],
) -> Robustness:
    """Return the accuracy under each of the corruptions `names`; `clean` is that on the items as they are.

    `start` returns a new task over items that stand in for these, in the same order; `predict` lets the model predict one of them;
    `progress` is called with the number of items that are done, and of all.

    Raises:
        ConfigError: a corruption is unknown or for another kind of item, or an item cannot be read.
    """
    kind, fitting = _of_kind(items, names)
    total = len(fitting) * len(SEVERITIES) * len(items)
    identities = [item.sha256().hex() for item in items]
    results: list[Corruption] = []
    finished = 0
    for name in fitting:
        values: list[float | None] = []
        for severity in SEVERITIES:
            with tempfile.TemporaryDirectory() as folder:
                stand_ins = tuple(item.of_file(Path(folder) / f"{index}{_SUFFIXES[kind]}") for index, item in enumerate(items))
                work = start(stand_ins)
                for index, identity in enumerate(identities):
                    _write(items[index], (name, severity, seed, identity), stand_ins[index].path)
                    predict(work, index)
                    stand_ins[index].path.unlink()
                    finished += 1
                    progress(finished, total)
            scored = work.score("value")
            values.append(None if scored is None else scored.value)
        results.append(Corruption(name=name, values=tuple(values)))
    scores = [value for result in results for value in result.values if value is not None]
    mean = sum(scores) / len(scores) if len(scores) == len(fitting) * len(SEVERITIES) else None
    drop = None if mean is None else gain(clean.value, clean.better) - gain(mean, clean.better)
    return Robustness(seed=seed, mean_value=mean, drop_value=drop, corruptions=tuple(results))


def _of_kind(items: Sequence[Item], names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the kind of the items, and the corruptions for it; those of other kinds are left out where all were asked for."""
    kinds = sorted({item.kind for item in items})
    if len(kinds) != 1 or kinds[0] not in _SUFFIXES:
        raise ConfigError(
            f"the data set holds items of kind {', '.join(kinds)}, corruptions are for one of {', '.join(_SUFFIXES)}: leave corrupt out"
        )
    (kind,) = kinds
    allowed = CORRUPTIONS[kind]
    foreign = [name for name in names if name not in allowed]
    if foreign and len(names) < len(EVERY_CORRUPTION):
        raise ConfigError(f"the corruption {foreign[0]!r} is not for items of kind {kind}: choose from {', '.join(allowed)}, or all")
    return kind, tuple(name for name in allowed if name in names)

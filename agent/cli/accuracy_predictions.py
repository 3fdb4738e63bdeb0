"""The work of `edgemeter accuracy --predictions`: a file of predictions, scored against ground truth without a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.accuracy_scores import AccuracyScores
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets import GroundTruth, coco
from edgemeter.agent.datasets.clusters import clusters_of
from edgemeter.agent.datasets.coco import CocoDocument, image_names, plain_document
from edgemeter.agent.datasets.coco_results import HEIGHT, IMAGE, X, read_results, result_oddities
from edgemeter.agent.datasets.dataset import read_truth, without_files
from edgemeter.agent.datasets.predictions import read_predictions
from edgemeter.agent.tasks.coco_ap import Bounds, coco_accuracy
from edgemeter.agent.tasks.coco_matches import BOXES, KEYPOINTS, MASKS, CocoAp, ObjectKind
from edgemeter.agent.tasks.parts import units_of
from edgemeter.agent.tasks.predicted import score_classes
from edgemeter.agent.tasks.shapes import scored_shapes, with_shapes
from edgemeter.agent.verdict import accuracy_rules

_KINDS: Mapping[str, ObjectKind] = {"detection": BOXES, "segmentation": MASKS, "pose": KEYPOINTS}


def of_predictions(
    predictions: Path,
    annotations: Path | None,
    data: Path | None = None,
    *,
    task: str | None = None,
    reader: str | None = None,
    bounds: Bounds | None = None,
    cluster_by: str | None = None,
) -> AccuracyScores:
    """Return the accuracy of the predictions in a file; every item of the ground truth counts. `cluster_by` as of `clusters_of`.

    The task follows from the ground truth and, where that leaves several, from what the file holds; `task` names it.

    Raises:
        EdgemeterError: a file is unreadable or the two do not belong together, or a library is missing.
    """
    truth = _ground_truth(annotations, data, reader)
    if isinstance(truth.content, CocoDocument):
        return _of_objects(predictions, truth, truth.content, _checked(task, tuple(_KINDS)), bounds or "auto", cluster_by)
    if bounds is not None:
        raise ConfigError("--bounds has no effect on these predictions, only on those of COCO: leave it out")
    dataset = without_files(truth, (annotations or data or predictions).name, cluster_by)
    _checked(task, ("classification",))
    accuracy = score_classes(read_predictions(predictions), dataset)
    return AccuracyScores(accuracy, len(dataset.items), accuracy.warnings if accuracy else dataset.warnings, "classification")


def _ground_truth(annotations: Path | None, data: Path | None, reader: str | None) -> GroundTruth:
    folder = data or annotations or Path()
    truth = read_truth(folder if data is not None or folder.is_dir() else folder.parent, annotations, reader)
    if truth is None:
        raise ConfigError(f"{str(folder)!r} holds no ground truth: give --annotations FILE")
    return truth


def _checked(task: str | None, possible: Sequence[str]) -> str | None:
    """Return the task that was named; raises ConfigError where the ground truth is that of others."""
    if task is not None and task not in possible:
        raise ConfigError(f"--task {task}: the ground truth is that of {', '.join(possible)}: name one of them, or give other annotations")
    return task


def _of_objects(
    predictions: Path, truth: GroundTruth, document: CocoDocument, task: str | None, bounds: Bounds, cluster_by: str | None
) -> AccuracyScores:
    results = read_results(predictions, document, task)
    kind = _KINDS[results.task]
    plain = with_shapes(kind, plain_document(document))
    names = image_names(document)
    images = list(names)
    units = units_of(clusters_of(list(names.values()), truth.fields, cluster_by), names)
    found_in = results.rows[:, IMAGE].astype(int).tolist()
    numbered = ((f"result number {number}", found_in[number], shape) for number, shape in enumerate(results.shapes))
    scored = CocoAp(plain, results.rows, kind, scored_shapes(kind, plain, numbered))
    accuracy = coco_accuracy(scored, images, truth.sha256(), bounds, units)
    warnings = (*truth.warnings, *result_oddities(results.rows))
    reason = None
    if accuracy is None:
        are_crowds = bool(document.annotations)
        content = "crowds only, which need not be detected" if are_crowds else "no objects"
        reason = f"the annotations contain {content}, so there is no AP"
    else:
        warnings += _silent(results.rows, len(images))
    if accuracy is not None and results.task == "detection":
        warnings += _doubtful(accuracy, plain, results.rows, images)
    return AccuracyScores(accuracy, len(images), warnings, results.task, len(results.rows), reason=reason)


def _silent(rows: NDArray[np.float64], images: int) -> tuple[str, ...]:
    """Return the warning about images without detections: they lower the score, which a reader cannot see from the figure."""
    silent = images - len(np.unique(rows[:, IMAGE]))
    return (f"{silent} of {images} images have no detections; their objects count as missed",) if silent else ()


def _doubtful(accuracy: Accuracy, truth: Mapping[str, Any], rows: NDArray[np.float64], images: Sequence[int]) -> tuple[str, ...]:
    """Return why an AP near 0 is rather that of a misread file: the boxes read another way, where they score then."""
    objects = sum(not annotation["iscrowd"] for annotation in truth["annotations"])
    if accuracy.value >= accuracy_rules.IMPLAUSIBLE or objects < accuracy_rules.FEW or not len(rows):
        return ()
    about = f"AP {accuracy.value:.3f} on {objects} objects, and nothing in use is below {accuracy_rules.IMPLAUSIBLE}"
    best, name = 0.0, ""
    for other, read in coco.OTHER_BOX_FORMS.items():
        reread = rows.copy()
        reread[:, X : HEIGHT + 1] = read(rows[:, X : HEIGHT + 1])
        ap = CocoAp(truth, reread).figures(images).overall["ap"]
        if ap is not None and ap > best:
            best, name = ap, other
    if best > max(2 * accuracy.value, accuracy_rules.IMPLAUSIBLE):
        return (f"{about}: as {name} the same boxes have AP {best:.3f}; {coco.BOX_FORM}",)
    return (f"{about}: are the boxes in pixels of the photograph, not of the model's input, and the categories those of the annotations?",)

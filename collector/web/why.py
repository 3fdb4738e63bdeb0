"""Why an accuracy is what it is, or why two differ: what the kept predictions show, object by object, on the page of a run or of two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import msgspec

from edgemeter.agent.base import figures
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.kept_predictions import KeptPhotograph, KeptPredictions, unpack
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.predictions.differences import SIZES, WORSE, Kind, PhotographDifferences, PredictionDifferences, differences
from edgemeter.collector.predictions.quality import BestThreshold, best_threshold, calibration, confusion, precision_recall
from edgemeter.collector.show.accuracy_charts import confusion_chart, precision_recall_chart, reliability_chart
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.marked_photograph import SIGNS, legend, marked_photograph
from edgemeter.collector.web.markup import NOTHING, Markup, element, join, part
from edgemeter.collector.web.view import FileLinks, View, ViewColumn, folded_note, grid, note, plain_table, section
from edgemeter.collector.web.why_panels import PanelNames, panels_of

# How many photographs a page shows, the worst first, and how many classes.
WORST, CLASSES = 8, 20
NOT_KEPT = "the predictions of {run} are not kept: `edgemeter run --keep-predictions` keeps them"
PLAIN = "Photographs are not kept with a run: boxes lie on a plain ground until `--photographs FOLDER` names where they are."
# Differences in words: of two runs, and of one against what is there.
OF_TWO: Mapping[Kind, str] = {
    "missed": "missed by B, found by A",
    "other-class": "called another class by B",
    "false": "found by B where nothing is",
    "moved": "moved: the boxes overlap by less than 0.9",
    "gained": "found by B, not by A",
    "false-gone": "found by A where nothing is",
    "both": "found by both",
    "neither": "found by neither",
    "false-both": "found by both where nothing is",
}
OF_ONE: Mapping[Kind, str] = {"missed": "missed", "other-class": "called another class", "false": "found where nothing is", "both": "found"}
SHORT: Mapping[Kind, str] = {"other-class": "of another class", "false": "false", "false-gone": "no longer false"}


@dataclass(frozen=True, slots=True)
class _Subject:
    """The sides of a section: the run or runs by their names in it, their kept predictions, and how differences are called."""

    runs: Mapping[str, RunRecord]
    kept: Mapping[str, KeptPredictions]
    compared: PredictionDifferences
    names: Mapping[Kind, str]

    @property
    def panels(self) -> PanelNames:
        """Return the headings of the panels by the side that they show."""
        sides = ("reference", "device")[-len(self.runs) :]
        headings = [
            f"{name}: {run.precision} on {run.runtime.name}, {run.device}" if len(self.runs) > 1 else f"{run.precision} on {run.device}"
            for name, run in self.runs.items()
        ]
        return {"truth": "Truth", **dict(zip(sides, headings, strict=True))}


def why(context: ViewContext, runs: Mapping[str, RunRecord]) -> tuple[Markup, tuple[ViewTable, ...]]:
    """Return the section of one run against what is there, or of two (A and B), and its tables; of none without kept predictions."""
    heading = "Why the accuracies differ" if len(runs) > 1 else "Where the accuracy is lost"
    reasons = [run.predictions_reason or NOT_KEPT.format(run=name) for name, run in runs.items() if not run.predictions]
    try:
        kept = {name: unpack(run.predictions.data) for name, run in runs.items() if run.predictions}
        if reasons:
            raise ConfigError("; ".join(reasons))
        subject = _of_one(runs, kept) if len(runs) == 1 else _Subject(runs, kept, differences(*kept.values()), OF_TWO)
    except ConfigError as error:
        return section("why", heading, note(f"{str(error)[:1].upper()}{str(error)[1:]}.")), ()
    kinds, objects = _kinds(subject)
    classes, labels = _classes(subject)
    thresholds, bests = _thresholds(subject)
    content = [element("p", None, _summary(subject)), kinds, _worst(context, subject), _charts(context, subject), thresholds, classes]
    return section("why", heading, *content), (objects, labels, *bests)


def _of_one(runs: Mapping[str, RunRecord], kept: Mapping[str, KeptPredictions]) -> _Subject:
    """Return a run against one that finds exactly what is there; that no box is exactly there is no difference."""
    (predictions,) = kept.values()
    photographs = tuple(
        msgspec.structs.replace(
            photo, found=tuple(msgspec.structs.replace(thing, score=1.0) for thing in photo.truth if not thing.ignored)
        )
        for photo in predictions.photographs
    )
    answers = tuple(msgspec.structs.replace(answer, best=((answer.truth, 1.0),)) for answer in predictions.answers)
    compared = differences(msgspec.structs.replace(predictions, photographs=photographs, answers=answers), predictions)
    return _Subject(runs, kept, compared, OF_ONE)


def _summary(subject: _Subject) -> str:
    count = subject.compared.counts.get
    score = f"Of objects found with a score of at least {subject.compared.score:g}, " if next(iter(subject.kept.values())).photographs else ""
    if len(subject.runs) == 1:
        text = f"{score}this run misses {count('missed', 0):,}, calls {count('other-class', 0):,} something else"
        return f"{text}, and finds {count('false', 0):,} where nothing is.".capitalize()
    lowered = f" ({subject.compared.lowered:,} of them it finds with a lower score)" if subject.compared.lowered else ""
    text = f"{score}B misses {count('missed', 0):,} that A finds{lowered}, calls {count('other-class', 0):,} something else"
    text += f", and finds {count('false', 0):,} where nothing is; it finds {count('gained', 0):,} that A does not."
    return f"{text}{f' {subject.compared.note}.' if subject.compared.note else ''}"

"""Why an accuracy is what it is, or why two differ: what the kept predictions show, object by object, on the page of a run or of two."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.kept_predictions import KeptPhotograph, KeptPredictions, predictions_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.charts.chart import Chart, ViewTable
from edgemeter.collector.predictions.differences import (
    KINDS,
    SAME,
    SIZES,
    WORSE,
    Kind,
    PhotographDifferences,
    PredictionDifferences,
    Side,
    differences,
)
from edgemeter.collector.predictions.quality import BestThreshold, best_threshold, calibration, confusion, precision_recall
from edgemeter.collector.show.accuracy_charts import confusion_chart, precision_recall_chart, reliability_chart
from edgemeter.collector.show.wording import listed, sentence
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.marked_photograph import SIGNS, legend, marked_photograph, panels_of
from edgemeter.collector.web.markup import NOTHING, Markup, element, join, part
from edgemeter.collector.web.view import FileLinks, ViewColumn, folded_section, grid, note, plain_table, section

# A matrix of more classes is not made.
MOST_CLASSES = 2000
# How many photographs a page shows, the worst first, and how many classes or groups.
WORST, PARTS = 8, 20
PLAIN = "Photographs are not kept with a run: boxes lie on a plain ground until `--photographs FOLDER` names where they are."
# Differences in words, the worse first: of two runs, and of one against what is there.
OF_TWO: Mapping[Kind, str] = {
    kind: KINDS[kind].replace("the reference", "A").replace("the device", "B")
    for kind in sorted(KINDS, key=lambda kind: (kind not in WORSE, kind in SAME))
}
OF_ONE: Mapping[Kind, str] = {"missed": "missed", "other-class": "called another class", "false": "found where nothing is", "both": "found"}
SHORT: Mapping[Kind, str] = {"other-class": "of another class", "false": "false", "false-gone": "no longer false"}


@dataclass(frozen=True, slots=True)
class _Subject:
    """The sides of a section: the run or runs by their names in it, their kept predictions, and how differences are called."""

    runs: Mapping[str, RunRecord]
    predictions: Mapping[str, KeptPredictions]
    compared: PredictionDifferences
    names: Mapping[Kind, str]

    def number(self, counts: Mapping[Kind, int], kind: Kind) -> int:
        """Return how many objects are of a kind: against what is there, that a box is not exactly there is no difference."""
        return counts.get(kind, 0) + (counts.get("moved", 0) if kind == "both" and "moved" not in self.names else 0)

    @property
    def panels(self) -> Mapping[Side, str]:
        """Return the headings of the panels by the side that they show."""
        sides: tuple[Side, ...] = ("reference", "device")
        headings = (f"{name}: {run.precision} on {run.runtime.name}, {run.device}" for name, run in self.runs.items())
        return {"truth": "Truth", **dict(zip(sides[-len(self.runs) :], headings, strict=True))}


def why(context: ViewContext, runs: Mapping[str, RunRecord]) -> tuple[Markup, tuple[ViewTable, ...]]:
    """Return the section of one run against what is there, or of two (A and B), and its tables; or why there is none."""
    heading = "Why the accuracies differ" if len(runs) > 1 else "Where the accuracy is lost"
    try:
        predictions = {name: predictions_of(run) for name, run in runs.items()}
        *reference, device = predictions.values()
        compared = differences(reference[0] if reference else _perfect(device), device)
    except ConfigError as error:
        return section("why", heading, note(f"{sentence(str(error))}.")), ()
    subject = _Subject(runs, predictions, compared, OF_TWO if reference else OF_ONE)
    kinds, objects = _kinds(subject)
    by_part = {"class": compared.by_label, "group": compared.by_group}
    parts = [_parts(subject, noun, numbers) for noun, numbers in by_part.items() if numbers]
    thresholds, bests = _thresholds(subject)
    tables = (objects, *bests, *(table for _, table in parts))
    content = section("why", heading, element("p", None, _summary(subject)), kinds, _worst(context, subject))
    curves = section("curves", "Confusions, curves and thresholds", _charts(context, subject), thresholds)
    return join([content, curves, *(markup for markup, _ in parts)]), tables


def _perfect(predictions: KeptPredictions) -> KeptPredictions:
    """Return the predictions of one who finds exactly what is there."""
    photographs = tuple(
        msgspec.structs.replace(photo, found=tuple(msgspec.structs.replace(thing, score=1.0) for thing in photo.truth if not thing.ignored))
        for photo in predictions.photographs
    )
    answers = tuple(msgspec.structs.replace(answer, best=((answer.truth, 1.0),)) for answer in predictions.answers)
    return msgspec.structs.replace(predictions, photographs=photographs, answers=answers)


def _summary(subject: _Subject) -> str:
    """Return in a sentence in what the run, or B, is worse, and what B does better."""
    compared, is_pair = subject.compared, len(subject.runs) > 1
    lowered = f" ({compared.lowered:,} of them it finds with a lower score)" if compared.lowered and is_pair else ""
    clauses: Mapping[Kind, str] = {
        "missed": f"misses {{:,}}{f' that A finds{lowered}' if is_pair else ''}",
        "other-class": "calls {:,} another class",
        "false": "finds {:,} where nothing is",
    }
    words = [clause.format(compared.counts[kind]) for kind, clause in clauses.items() if compared.counts.get(kind)]
    threshold = f" with a score of at least {compared.score:g}" if compared.by_size else ""
    gained = f"; it finds {compared.counts['gained']:,} that A does not" if compared.counts.get("gained") else ""
    no_words = "is nowhere worse" if is_pair else "errs nowhere"
    text = f"Of objects{threshold}, {'B' if is_pair else 'this run'} {listed(words) or no_words}{gained}."
    return f"{text}{f' {sentence(compared.note)}.' if compared.note else ''}"


def _kinds(subject: _Subject) -> tuple[Markup, ViewTable]:
    """Return how many objects are of each kind, in all and by size, which is the legend of the photographs too."""
    compared = subject.compared
    columns = {"all": compared.counts, **{size: compared.by_size[size] for size in SIZES if size in compared.by_size}}
    counts = {kind: [subject.number(column, kind) for column in columns.values()] for kind in subject.names}
    counts = {kind: numbers for kind, numbers in counts.items() if numbers[0]}
    headings = ["Objects", *(name.capitalize() for name in columns)]
    markup = legend(headings, subject.names, counts, has_lines=bool(compared.by_size))
    return markup, ViewTable("objects", ("kind", *columns), tuple((kind, *numbers) for kind, numbers in counts.items()))


def _parts(subject: _Subject, noun: str, by_part: Mapping[str, Mapping[Kind, int]]) -> tuple[Markup, ViewTable]:
    """Return the kinds of differences by class or by group, those with the most errors first."""
    ranked = sorted(by_part.items(), key=lambda entry: -sum(entry[1].get(kind, 0) for kind in WORSE))
    columns: list[ViewColumn[tuple[str, Mapping[Kind, int]]]] = [ViewColumn(noun, noun.capitalize(), lambda entry: entry[0], is_text=True)]
    columns += [_of_kind(subject, kind) for kind in subject.names if subject.compared.counts.get(kind)]
    name = f"by_{noun}"
    table, _ = grid(name, columns, ranked[:PARTS])
    summary = f"the {PARTS} with the most errors of {len(ranked)}" if len(ranked) > PARTS else f"{len(ranked)}"
    return folded_section(name, f"Differences by {noun}", summary, table), plain_table(name, columns, ranked)


def _of_kind(subject: _Subject, kind: Kind) -> ViewColumn[tuple[str, Mapping[Kind, int]]]:
    heading = SHORT.get(kind, kind).replace("-", " ").capitalize()
    return ViewColumn(kind.replace("-", "_"), heading, lambda entry: subject.number(entry[1], kind), explanation=subject.names[kind])


def _worst(context: ViewContext, subject: _Subject) -> Markup:
    worst = [photo for photo in subject.compared.worst(WORST) if photo.worse or len(subject.runs) > 1]
    if not worst:
        return note("No object differs.")
    if worst[0].width is None:
        return _worst_answers(subject, worst)
    pictures = [_photograph(context, subject, photo, f"photograph-{number}") for number, photo in enumerate(worst)]
    heading = element("h3", None, f"The worst photographs side by side: {len(worst)} of {len(subject.compared.photographs):,}")
    plain = NOTHING if context.photographs else note(PLAIN)
    return join([heading, plain, *pictures])


def _photograph(context: ViewContext, subject: _Subject, photo: PhotographDifferences, identity: str) -> Markup:
    size = photo.width or 0, photo.height or 0
    counts = Counter({mark.thing: mark.kind for mark in photo.marks}.values())
    words = ", ".join(f"{number} {SHORT.get(kind, kind)}" for kind in SIGNS if kind in subject.names and (number := counts[kind]))
    caption = f"{photo.name}: {words}. {size[0]:,} x {size[1]:,} pixels"
    source = None
    if context.photographs:
        file = KeptPhotograph(name=photo.name, width=size[0], height=size[1])
        try:
            if isinstance(context.links, FileLinks):
                source = context.photographs.data_address(file)
            else:
                source = context.photographs.address(next(iter(subject.runs.values())).id, file)
        except ConfigError as error:
            caption += f"; not shown: {error}"
    return marked_photograph(panels_of(photo, subject.panels, subject.names), size, source, identity, f"{caption}.")


def _worst_answers(subject: _Subject, worst: Sequence[PhotographDifferences]) -> Markup:
    columns: list[ViewColumn[PhotographDifferences]] = [
        ViewColumn("name", "Item", lambda photo: photo.name, is_text=True),
        *(_of_side(side, heading) for side, heading in subject.panels.items()),
    ]
    return join([element("h3", None, "Items that differ"), grid("items", columns, worst)[0]])


def _of_side(side: Side, heading: str) -> ViewColumn[PhotographDifferences]:
    def answer(photo: PhotographDifferences) -> str | None:
        mark = next((mark for mark in photo.marks if mark.side == side), None)
        return None if mark is None else mark.label if mark.score is None else f"{mark.label} {mark.score:.2f}"

    return ViewColumn(side, heading, answer, is_text=True)


def _charts(context: ViewContext, subject: _Subject) -> Markup:
    predictions = subject.predictions
    is_detector = any(side.photographs for side in predictions.values())
    curves = {name: curve for name, side in predictions.items() if is_detector and (curve := precision_recall(side))}
    charts: list[Chart | None] = [
        *([precision_recall_chart(curves, max(side.least_score for side in predictions.values()))] if curves else []),
        reliability_chart({name: calibration(side) for name, side in predictions.items()}),
    ]
    if len(next(iter(predictions.values())).labels) <= MOST_CLASSES:
        matrices = [confusion(side, subject.compared.score) for side in predictions.values()]
        charts.append(confusion_chart(matrices, has_background=is_detector))
    return part("gallery", [context.sheet.draw(chart) for chart in charts if chart])


def _thresholds(subject: _Subject) -> tuple[Markup, tuple[ViewTable, ...]]:
    bests = {name: best_threshold(side) for name, side in subject.predictions.items() if side.photographs}
    lines = [(name, best[0]) for name, best in bests.items() if best]
    if not lines:
        return NOTHING, ()
    columns: list[ViewColumn[tuple[str, BestThreshold]]] = [ViewColumn("run", "Run", lambda line: line[0], is_text=True)]
    columns += map(_of_threshold, ("score", "f1", "precision", "recall", "right", "false", "missed"))
    table, plain = grid("thresholds", columns, lines)
    return join([element("h3", None, "Best threshold: the score with the highest F1"), table]), (plain,)


def _of_threshold(name: str) -> ViewColumn[tuple[str, BestThreshold]]:
    return ViewColumn(name, name.capitalize(), lambda line: getattr(line[1], name))

"""How often the bounds of an accuracy hold the truth where items depend: frames of videos, recordings of speakers; and where they do not.

The worlds share nothing with the method: the share of right frames of a video is drawn from a beta distribution with the stated correlation
within the video (ICC), or wanders along it (AR(1) on the scale of log odds); videos are of unequal length (log-normal, .7), in some worlds
the longer the harder. Words that are wrong come in bursts (gamma times Poisson). AP is COCO's own evaluation of made-up boxes whose
difficulty the video shares. The truth is the figure of an endless draw of videos. `before` are bounds over items taken as independent,
Wilson's or Student's t around the figure. The width is compared with 3.92 standard deviations of the figure over the draws, which is what
somebody would need who knew it; `refused` is the share of draws without bounds.

`python -m tests.benchmarks.clusters [DRAWS [NAME]]` prints a line of JSON for each world, of those whose name contains NAME.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.statistics import jackknife_error, paired_bounds, student_quantile
from edgemeter.agent.tasks.coco_matches import CocoAp
from edgemeter.agent.tasks.parts import INDEPENDENT, PARTS, ItemFigure, Jackknifed, Share, Units, without_parts
from tests.benchmarks.comparison import Comparison, covered

DRAWS = 200
Random = np.random.Generator
Floats = NDArray[np.float64]
# The figures of one draw, of a pair two, and what is independent in it.
Drawn = tuple[Sequence[ItemFigure], Units, Sequence[int]]


@dataclass(frozen=True, slots=True)
class World:
    """What is drawn, and how the true figure (of a pair the true difference) is computed."""

    name: str
    draw: Callable[[Random], Drawn]
    truth: Callable[[], float]


def sizes(random: Random, clusters: int, mean: float, spread: float = 0.7) -> NDArray[np.int64]:
    """Return the lengths of the clusters, at least 1."""
    lengths = np.maximum(1, np.round(mean * random.lognormal(-(spread**2) / 2, spread, clusters))) if mean > 1 else np.ones(clusters)
    return lengths.astype(np.int64)


def units_of(lengths: NDArray[np.int64]) -> Units:
    """Return units of clusters of these lengths; of one item each the items."""
    if (lengths == 1).all():
        return INDEPENDENT
    return Units(by="video_id", cluster_of=dict(enumerate(map(str, np.repeat(np.arange(len(lengths)), lengths).tolist()))))


def share_of(right: NDArray[np.bool_]) -> Share:
    """Return top-1 of these items."""
    return Share(dict(enumerate(right.tolist())))


def chances(random: Random, clusters: int, share: float, icc: float) -> Floats:
    """Return the share of right frames of each video."""
    if icc in (0, 1):
        return np.full(clusters, share) if icc == 0 else (random.random(clusters) < share).astype(np.float64)
    rate = (1 - icc) / icc
    return random.beta(share * rate, (1 - share) * rate, clusters)


def of_videos(clusters: int, mean: float, icc: float, share: float) -> Callable[[Random], Drawn]:
    """Return top-1 of frames of videos."""

    def draw(random: Random) -> Drawn:
        lengths = sizes(random, clusters, mean)
        right = random.random(lengths.sum()) < np.repeat(chances(random, clusters, share, icc), lengths)
        return [share_of(right)], units_of(lengths), range(len(right))

    return draw


def wandering(random: Random, lengths: NDArray[np.int64], *, is_harder: bool = False) -> Floats:
    """Return the difficulty of each frame, which wanders along a video and, where asked for, grows with the video's length."""
    steps = random.normal(size=lengths.sum()) * math.sqrt(1 - 0.95**2)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    steps[begins] /= math.sqrt(1 - 0.95**2)
    values = np.empty_like(steps)
    for begin, length in zip(begins, lengths, strict=True):
        level = 0.0
        for index in range(begin, begin + length):
            level = 0.95 * level + steps[index]
            values[index] = level
    return values + np.repeat(0.5 * np.log(lengths / 20), lengths) if is_harder else values


def of_wandering(clusters: int, mean: float, *, is_harder: bool) -> Callable[[Random], Drawn]:
    """Return top-1 of frames whose difficulty wanders."""

    def draw(random: Random) -> Drawn:
        lengths = sizes(random, clusters, mean)
        right = wandering(random, lengths, is_harder=is_harder) + random.normal(size=lengths.sum()) < 1.2
        return [share_of(right)], units_of(lengths), range(len(right))

    return draw


def of_pair(clusters: int, mean: float) -> Callable[[Random], Drawn]:
    """Return top-1 of two models that find the same frames hard, the second 4 points or so worse."""

    def draw(random: Random) -> Drawn:
        lengths = sizes(random, clusters, mean)
        hard = wandering(random, lengths)
        of_video = np.repeat(random.normal(size=(2, clusters)) * 0.3, lengths, axis=1)
        rights = [
            hard + deviation + random.normal(size=len(hard)) * 0.5 < limit for deviation, limit in zip(of_video, (1.0, 0.8), strict=True)
        ]
        return [share_of(right) for right in rights], units_of(lengths), range(len(hard))

    return draw


def of_boxes(clusters: int, mean: float, icc: float) -> Callable[[Random], Drawn]:
    """Return COCO's AP of two classes; misses, bad boxes and low scores grow with the difficulty that the video and the object have."""

    def draw(random: Random) -> Drawn:
        lengths = sizes(random, clusters, mean)
        video = np.repeat(random.normal(size=clusters), lengths)
        count = random.poisson(3.0 * np.repeat(random.gamma(4, 0.25, clusters), lengths) if icc else np.full(len(video), 3.0))
        image = np.repeat(np.arange(len(video)), count)
        hard = math.sqrt(icc) * video[image] + math.sqrt(1 - icc) * random.normal(size=len(image))
        boxes = np.column_stack([random.uniform(0, 500, (len(image), 2)), random.uniform(40, 110, (len(image), 2))])
        classes, noise = random.integers(1, 3, len(image)), 0.06 * np.exp(0.4 * hard)[:, None]
        moved = boxes[:, :2] + boxes[:, 2:] * noise * random.normal(size=(len(image), 2))
        sized = boxes[:, 2:] * np.exp(noise * random.normal(size=(len(image), 2)))
        score = 1 / (1 + np.exp(-(1 - 0.9 * hard + 0.7 * random.normal(size=len(image)))))
        rows = np.column_stack([image, moved, sized, score, classes])[hard < 0.7]
        stray = np.repeat(np.arange(len(video)), random.poisson(np.clip(1.2 * np.exp(0.6 * math.sqrt(icc) * video), 0, 20)))
        strays = np.column_stack(
            [
                stray,
                random.uniform(0, 500, (len(stray), 2)),
                random.uniform(40, 110, (len(stray), 2)),
                1 / (1 + np.exp(0.8 - 0.9 * random.normal(size=len(stray)))),
                random.integers(1, 3, len(stray)),
            ]
        )
        scored = CocoAp(_document(len(video), image, boxes, classes), np.vstack([rows, strays]))
        return [scored.ap], units_of(lengths), range(len(video))

    return draw


def _document(images: int, image: NDArray[np.int64], boxes: Floats, classes: NDArray[np.int64]) -> dict[str, Any]:
    annotations = [
        {"image_id": number, "category_id": category, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
        for number, category, box in zip(image.tolist(), classes.tolist(), boxes.tolist(), strict=True)
    ]
    categories = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    return {"images": [{"id": number} for number in range(images)], "categories": categories, "annotations": annotations}


def endless(
    make: Callable[..., Callable[[Random], Drawn]], *values: float, draws: int = 1, clusters: int = 20_000, **options: Any
) -> float:
    """Return the figure (of a pair the difference) of so many clusters that it is the truth."""
    random = np.random.default_rng(1)
    results = []
    for _ in range(draws):
        figures, _, members = make(clusters, *values, **options)(random)
        shares = [figure.value(members) or 0.0 for figure in figures]
        results.append(shares[0] - shares[1] if len(shares) == 2 else shares[0])
    return float(np.mean(results))


def grid() -> Iterator[World]:
    """Yield the worlds."""
    for clusters, mean, icc in product((10, 30, 100), (5, 10, 50), (0, 0.1, 0.5, 1)):
        yield World(f"top-1 .8, {clusters} videos of {mean}, ICC {icc}", of_videos(clusters, mean, icc, 0.8), lambda: 0.8)
    for clusters, icc in product((10, 30, 100), (0, 0.1, 0.5)):
        yield World(f"top-1 .95, {clusters} videos of 20, ICC {icc}", of_videos(clusters, 20, icc, 0.95), lambda: 0.95)
    for count, share in product((30, 100, 500), (0.5, 0.8, 0.95)):
        yield World(f"top-1 {share:g}, {count} images", of_videos(count, 1, 0, share), partial(float, share))
    for clusters, mean, is_harder in product((8, 15, 40), (20,), (False, True)):
        truth = partial(endless, of_wandering, mean, is_harder=is_harder)
        name = f"top-1 that wanders, {clusters} videos of {mean}{', the longer the harder' if is_harder else ''}"
        yield World(name, of_wandering(clusters, mean, is_harder=is_harder), truth)
    for clusters, mean in ((10, 20), (30, 10), (100, 10), (200, 1)):
        yield World(f"difference of two models, {clusters} videos of {mean}", of_pair(clusters, mean), partial(endless, of_pair, mean))
    for clusters, mean, icc in (
        (30, 1, 0),
        (100, 1, 0),
        (10, 10, 0.1),
        (10, 10, 0.5),
        (30, 10, 0.1),
        (30, 10, 0.5),
        (10, 50, 0.1),
        (50, 5, 1),
    ):
        name = f"AP, {clusters} videos of {mean}, ICC {icc}" if mean > 1 else f"AP, {clusters} images"
        yield World(name, of_boxes(clusters, mean, icc), partial(endless, of_boxes, mean, icc, draws=3, clusters=25_000 // mean + 1000))


def judged(world: World, draws: int) -> dict[str, object]:
    """Return how often the bounds of a world hold, before and now, and how wide they are."""
    random, truth = np.random.default_rng(2), world.truth()
    values, before, after, refused = [], [], [], 0
    for _ in range(draws):
        figures, units, members = world.draw(random)
        bounds = [_bounds(figures, members, INDEPENDENT, is_plain=True), _bounds(figures, members, units)]
        shares = [figure.value(members) or 0.0 for figure in figures]
        values.append(shares[0] - shares[1] if len(shares) == 2 else shares[0])
        refused += bounds[1] is None
        for results, low_high in zip((before, after), bounds, strict=True):
            if low_high is not None:
                results.append((low_high[0] <= truth <= low_high[1], low_high[1] - low_high[0]))
    best = 2 * 1.96 * float(np.std(values))
    line: dict[str, object] = {"world": world.name, "draws": draws, "truth": round(truth, 4), "refused": refused}
    for name, results in (("before", before), ("after", after)):
        line[name] = round(sum(holds for holds, _ in results) / len(results), 3) if results else None
        line[f"{name}_width_ratio"] = round(float(np.median([width for _, width in results])) / best, 2) if results else None
    return line


def _bounds(figures: Sequence[ItemFigure], members: Sequence[int], units: Units, *, is_plain: bool = False) -> tuple[float, float] | None:
    if len(figures) == 2:
        difference = (figures[0].value(members) or 0.0) - (figures[1].value(members) or 0.0)
        first, second = (without_parts(members, figure.value, units) for figure in figures)
        return paired_bounds(difference, first, second)
    (figure,) = figures
    if is_plain and isinstance(figure, Jackknifed):
        value, error = figure.value(members), jackknife_error(without_parts(members, figure.value) or (0.0, 0.0))
        reach = student_quantile(0.95, PARTS - 1) * (error or 0.0)
        return (value - reach, value + reach) if value is not None and error else None
    bounded = figure.bounded(members, units)
    return None if bounded.low is None or bounded.high is None else (bounded.low, bounded.high)


def comparisons(draws: int = DRAWS) -> Iterator[Comparison]:
    """Yield how often the bounds of each world hold."""
    for world in grid():
        line = judged(world, draws)
        if isinstance(line["after"], float):
            yield covered(f"accuracy: {world.name}: bounds that hold the truth ({line['refused']} of {draws} refused)", line["after"])


if __name__ == "__main__":
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS
    for candidate in grid():
        if (sys.argv[2] if len(sys.argv) > 2 else "") in candidate.name:
            print(json.dumps(judged(candidate, draws)), flush=True)

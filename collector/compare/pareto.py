"""The Pareto front: what nothing else beats in both cost and accuracy."""

from collections.abc import Sequence


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points (cost, gain) that no other point beats, cheapest first.

    A point beats another when it is at least as good in both and better in one; of equal points all stay.
    """
    order = sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1]))
    kept: list[int] = []
    for index in order:
        cost, gain = points[index]
        if not kept or gain > points[kept[-1]][1] or (cost, gain) == points[kept[-1]]:
            kept.append(index)
    return kept

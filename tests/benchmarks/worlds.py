"""How often the comparison errs in worlds that are known: cases that are equal, one that is 10% slower, and choices among several.

A world has days that scatter by 2% and runs that scatter by 1%, with normal noise, skewed noise, and noise of which one run in ten is
disturbed. The two cases ran on the same days, or on others, of which each may take after the day before, or one after the other on one
day of a virtual machine, whose sessions scatter by 6%. In a session they take turns, with runs that scatter by 2%, and it ends early where
all differences are decided.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from edgemeter.agent.base.decision import MATTERS_RATIO, decide, holm, rounds_to_decide
from edgemeter.agent.base.evidence import FEWEST, GUEST_SESSION_SD, Evidence, RunValue, difference, mean_of
from tests.benchmarks.comparison import Comparison, bounded, figure
from tests.fixtures.choice_worlds import days_in_a_row, noise

DAY_SD, RUN_SD = 0.02, 0.01
DRAWS = 1000
# Days and runs a day.
SIZES = ((1, 3), (1, 10), (3, 3), (10, 1))
KINDS = ("normal", "skewed", "disturbed")
SLOWER = math.log(1.1)
DRIFTING = "other days, correlated by 0.5"
FIGURES = 4  # So many figures of one answer are decided together.
SESSION_SD = 0.02
# About as many rounds as two minutes a case hold in the modes quick and rapid.
SESSION_ROUNDS = (5, 24)


def comparisons() -> Iterator[Comparison]:
    """Yield how often equal cases are called different, and how often a slower one is found."""
    for kind, (days, runs), where in itertools.product(KINDS, SIZES, ("same days", "other days", DRIFTING, "other sessions")):
        if (where == "other sessions" and days > 1) or (where == DRIFTING and days == 1):
            continue
        name = f"{kind}, {days} x {runs} runs, {where}"
        draw = np.random.default_rng(1)
        worlds = [World(draw, kind, days, runs, where) for _ in range(DRAWS)]
        false = sum(world.is_false() for world in worlds) / DRAWS
        # Few days hardly show how much each takes after the one before.
        yield bounded(f"equal cases called different: {name}", "%", 100 * false, at_most=15 if where == DRIFTING else 5)
        times_found = sum(world.is_found() for world in worlds) / DRAWS
        # Nine runs on three days are what a careful user makes.
        is_asked = (days, runs) == (3, 3)
        line = f"10% slower found: {name}"
        yield bounded(line, "%", 100 * times_found, at_least=90) if is_asked else figure(line, "%", 100 * times_found)


def sessions() -> Iterator[Comparison]:
    """Yield how often a session that ends early calls equal cases different, finds a slower one, and how many rounds it takes."""
    for kind, rounds, figures in itertools.product(KINDS, SESSION_ROUNDS, (1, FIGURES)):
        name = f"{kind}, a session of up to {rounds} rounds, {figures} {'figure' if figures == 1 else 'figures'}"
        draw = np.random.default_rng(1)
        differences = [_differences(draw, kind, figures, rounds) for _ in range(DRAWS)]
        false = sum("different" in _ended(logs)[0] for logs in differences) / DRAWS
        yield bounded(f"equal cases called different: {name}", "%", 100 * false, at_most=5)
        slower = [_ended(logs + SLOWER) for logs in differences]
        yield figure(f"10% slower found: {name}", "%", 100 * sum(outcomes[0] == "different" for outcomes, _ in slower) / DRAWS)
        yield figure(f"10% slower, after: {name}", "rounds", sum(ended for _, ended in slower) / DRAWS)


def _differences(draw: np.random.Generator, kind: str, figures: int, rounds: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the differences of two equal cases by figure and round."""
    logs = SESSION_SD * noise(draw, kind, 2 * figures * rounds).reshape(2, figures, rounds)
    return np.asarray(logs[0] - logs[1])


def _ended(differences: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> tuple[list[str], int]:
    """Return what a session says of each figure, and after how many rounds it ends."""
    most_rounds = differences.shape[1]
    for rounds in range(FEWEST, most_rounds + 1):
        evidences = [_of_pairs(of_figure[:rounds]) for of_figure in differences]
        if rounds == most_rounds or rounds_to_decide(evidences, MATTERS_RATIO) == 0:
            break
    decisions = [decide(evidence, at, MATTERS_RATIO, "lower") for evidence, at in zip(evidences, holm(evidences), strict=True)]
    return ["different" if decision.outcome in ("better", "worse") else decision.outcome for decision in decisions], rounds


def _of_pairs(differences: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Evidence:
    return mean_of([RunValue(float(value), "board", 0) for value in differences])


class World:
    """Two cases of one device with several figures, whose truths differ by what is asked."""

    def __init__(self, draw: np.random.Generator, kind: str, days: int, runs: int, where: str) -> None:
        self._figures = []
        for _ in range(FIGURES):
            sd = GUEST_SESSION_SD if where == "other sessions" else DAY_SD
            correlation = 0.5 if where == DRIFTING else 0.0
            of_days = sd * days_in_a_row(noise(draw, "normal", 2 * days).reshape(2, days), correlation)
            levels = of_days[[0, 0]] if where == "same days" else of_days
            logs = levels[:, :, None] + RUN_SD * noise(draw, kind, 2 * days * runs).reshape(2, days, runs)
            first_days = (0, 1000 if where in ("other days", DRIFTING) else 0)
            sides = [_values(side, first) for side, first in zip(logs, first_days, strict=True)]
            if where == "other sessions":
                sides = [[run._replace(turn=(side, 0), session_sd=sd) for run in sides[side]] for side in (0, 1)]
            self._figures.append(sides)

    def is_false(self) -> bool:
        """Return whether any of several figures of two equal cases is called different."""
        evidences = [difference(case, reference) for case, reference in self._figures]
        decided = [decide(evidence, at, MATTERS_RATIO, "lower").outcome for evidence, at in zip(evidences, holm(evidences), strict=True)]
        return "better" in decided or "worse" in decided

    def is_found(self) -> bool:
        """Return whether a case that is 10% slower in the one figure that is asked for is called worse."""
        case, reference = self._figures[0]
        slower = [value._replace(value=value.value + SLOWER) for value in case]
        return decide(difference(slower, reference), 0.95, MATTERS_RATIO, "lower").outcome == "worse"


def _values(logs: np.ndarray[tuple[int, int], np.dtype[np.float64]], first_day: int) -> list[RunValue]:
    return [RunValue(float(value), "board", first_day + day) for day, of_day in enumerate(logs) for value in of_day]

"""How often the golden band calls a healthy board suspect, and how soon it finds a slower one.

Run it: `python -m tests.benchmarks.golden_band [BOARDS]`. Each board has one golden run a day; its figures vary from run to run by so
much, normally or with heavy tails (Student's t with 3 degrees of freedom, scaled to the same median distance).
"""

import random
import sys
from collections.abc import Callable
from statistics import median

from edgemeter.provisioning.health import baseline

Draw = Callable[[random.Random, float], float]
DAYS = 90
SHIFT_AT = 40
LONGEST = 60


def normal(rng: random.Random, sigma: float) -> float:
    """Return one day's factor."""
    return 1 + rng.gauss(0, sigma)


def heavy(rng: random.Random, sigma: float) -> float:
    """Return one day's factor, far out now and then."""
    chi2 = sum(rng.gauss(0, 1) ** 2 for _ in range(3))
    # The median distance of t(3) is 0.765, that of a normal figure 0.6745.
    return max(0.2, 1 + sigma * (0.6745 / 0.765) * rng.gauss(0, 1) / (chi2 / 3) ** 0.5)


def course(values: Callable[[int], float], days: int) -> tuple[int, int, int | None]:
    """Return how many of so many golden runs were judged, how many more they caused, and on which day the board was suspected."""
    earlier: list[float] = []
    doubted: list[str] = []
    judged = repeated = 0
    for day in range(1, days + 1):
        value = values(day)
        judged += baseline.band_of(earlier) is not None
        judgement = baseline.judge_figure("latency_p50_ms", value, earlier)
        if judgement and baseline.is_fault([judgement], doubted):
            return judged, repeated, day
        doubted = [judgement.side] if judgement else []
        repeated += bool(doubted)
        earlier.append(value)
    return judged, repeated, None


def false_alarms(draw: Draw, sigma: float, boards: int, seed: int = 1) -> tuple[float, float]:
    """Return, of boards on which nothing changes, the share of judged runs that end in suspicion, and that are repeated for a doubt."""
    rng = random.Random(seed)  # noqa: S311 - a simulation
    courses = [course(lambda _day: 10 * draw(rng, sigma), DAYS) for _ in range(boards)]
    judged = sum(of_board[0] for of_board in courses)
    return sum(of_board[2] is not None for of_board in courses) / judged, sum(of_board[1] for of_board in courses) / judged


def runs_to_find(draw: Draw, sigma: float, factor: float, boards: int, seed: int = 2) -> tuple[float, float, float]:
    """Return after how many golden runs a change by `factor` is found: median, nine in ten; and the share found within 10."""
    rng = random.Random(seed)  # noqa: S311 - a simulation
    runs_taken = []
    for _ in range(boards):
        _, _, found_on_day = course(lambda day: 10 * draw(rng, sigma) * (factor if day > SHIFT_AT else 1), SHIFT_AT + LONGEST)
        # What was suspected before the change is a false alarm, counted above.
        if found_on_day is None or found_on_day > SHIFT_AT:
            runs_taken.append(LONGEST if found_on_day is None else found_on_day - SHIFT_AT)
    runs_taken.sort()
    return median(runs_taken), runs_taken[int(0.9 * len(runs_taken))], sum(runs <= 10 for runs in runs_taken) / len(runs_taken)


def main(boards: int) -> None:
    """Print the table."""
    print("| run to run | tails | false alarms | repeated for a doubt | +10% found after (9 in 10; within 10) | +20% |")
    print("|---|---|---|---|---|---|")
    for sigma in (0.005, 0.01, 0.02, 0.03):
        for name, draw in (("normal", normal), ("heavy", heavy)):
            wrong, doubted = false_alarms(draw, sigma, boards)
            ten, twenty = (runs_to_find(draw, sigma, factor, max(200, boards // 5)) for factor in (1.1, 1.2))
            cells = [f"{figures[0]:.0f} ({figures[1]:.0f}; {figures[2]:.0%})" for figures in (ten, twenty)]
            print(f"| {sigma:.1%} | {name} | {wrong:.4%} | {doubted:.2%} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)

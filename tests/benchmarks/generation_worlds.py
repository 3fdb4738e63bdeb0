"""How often the intervals of a language model's energies hold the truth: of a request, and of decoding as the difference of two runs.

Each cell is a world of `tests.fixtures.generation_worlds`: requests with real edges, stamps some milliseconds off the work, pauses in
which a server works on untimed prompts, and a sensor that lags, averages, is late as a whole or renews its value by its own clock.

`python -m tests.benchmarks.generation_worlds [TRIALS [NAME]]` prints a line of JSON for each cell whose name contains NAME.
"""

import json
import statistics
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tests.fixtures.generation_worlds import GenerationWorld, draw_generation, judge_decode, judge_request
from tests.fixtures.sensor_worlds import held_ratio

TRIALS = 100
SENSORS: dict[str, dict[str, Any]] = {
    "lag 0 s": {},
    "lag .1 s": {"lag_s": 0.1},
    "lag .5 s": {"lag_s": 0.5},
    "lag 1 s": {"lag_s": 1.0},
    "mean of 1 s": {"window_s": 1.0},
    "late by .3 s": {"transport_s": 0.3},
    "renewed every .5 s": {"update_s": 0.5},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "10 Hz, 1.2 + 3 s": {},
    "10 Hz, 4 + 8 s": {"prefill_s": 4.0, "decode_s": 8.0, "timed_s": 120.0},
    "10 Hz, 4 + 8 s, prefill below decode": {"prefill_s": 4.0, "decode_s": 8.0, "timed_s": 120.0, "prefill_w": 5.0, "decode_w": 9.0},
    "10 Hz, 1.2 + 3 s, untimed prompts of .6 s": {"pause_s": 0.6},
    "10 Hz, 4 + 8 s, untimed prompts of .6 s": {"prefill_s": 4.0, "decode_s": 8.0, "timed_s": 120.0, "pause_s": 0.6},
    "10 Hz, 4 + 8 s, idle pauses of 3 s": {"prefill_s": 4.0, "decode_s": 8.0, "timed_s": 120.0, "pause_s": 3.0, "pause_w": 3.0},
    "10 Hz, 4 + 8 s, pauses of 20 ms": {"prefill_s": 4.0, "decode_s": 8.0, "timed_s": 120.0, "pause_s": 0.02},
    "10 Hz, one token of 1.2 s, untimed prompts of .5 s": {"prefill_s": 1.2, "decode_s": 1e-4, "pause_s": 0.5, "output_tokens": 1},
    "100 Hz, .3 + 1.5 s": {"rate": 100.0, "prefill_s": 0.3, "decode_s": 1.5, "timed_s": 40.0},
    "1 Hz, 12 + 20 s": {"rate": 1.0, "prefill_s": 12.0, "decode_s": 20.0, "timed_s": 200.0},
}


def generation_coverage(world: GenerationWorld, trials: int, seed: int = 1) -> dict[str, float | None]:
    """Return the shares of intervals that hold the truth, how wide they are (medians, relative), and how many draws gave no decoding."""
    draw = np.random.default_rng(seed)
    gains = [statistics.NormalDist().inv_cdf((number + 0.5) / trials) for number in draw.permutation(trials)]
    gross, net, decode, widths = [], [], [], []
    for gain_z in gains:
        trial = draw_generation(world, draw, gain_z)
        if (energy := judge_request(trial)) is None:
            continue
        gross.append((energy.gross_mj / 1000 - trial.gross_j, energy.gross_u_mj / 1000))
        if energy.net_mj is not None:
            net.append((energy.net_mj / 1000 - trial.net_j, energy.net_u_mj / 1000))
        if world.output_tokens > 1 and (judged := judge_decode(world, trial, draw, gain_z)):
            decode.append((judged[0] - trial.decode_j, judged[1]))
            widths.append((energy.gross_u_mj / energy.gross_mj, judged[1] / trial.decode_j))
    request_u, decode_u = (round(statistics.median(column), 4) for column in zip(*widths, strict=True)) if widths else (None, None)
    shares = {"gross": held_ratio(gross), "net": held_ratio(net), "decode": held_ratio(decode)}
    return shares | {"request_u": request_u, "decode_u": decode_u, "no_decode": trials - len(decode)}


def grid() -> Iterator[tuple[str, GenerationWorld]]:
    """Yield the cells: name and world."""
    for (requests, lengths), (sensor, late) in product(REQUESTS.items(), SENSORS.items()):
        yield f"{requests}, {sensor}", GenerationWorld(**lengths, **late)


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    selection = sys.argv[2] if len(sys.argv) > 2 else ""
    for name, world in grid():
        if selection in name:
            print(json.dumps({"cell": name, **generation_coverage(world, trials)}), flush=True)

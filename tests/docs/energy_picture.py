"""The picture of docs/explain/energy.md: which areas below the readings of a sensor are an energy.

python -m tests.docs.energy_picture    draws readings of a made-up board with a fan, and writes docs/images/energy.svg
"""

from collections.abc import Sequence
from html import escape

import numpy as np

from tests.fixtures.energy_worlds import BEGIN_S, Bursts, Fan, Sensor, World, draw_trial
from tests.fixtures.own_imports import ROOT

PICTURE = ROOT / "docs" / "images" / "energy.svg"
WORLD = World(
    load=Bursts(fps=0.5, duty=0.6, high_w=5.0, low_w=1.0, jitter=0.0, is_paused=False),
    sensor=Sensor(rise_s=0.6, fall_s=0.6, noise_w=0.03),
    fan=Fan(power_w=1.0, after_s=4.0, on_s=6.0),
    timed_s=16.0, idle_s=12.0, warm_up_s=0.0, idle_w=2.5,
)  # fmt: skip
# What came late is over after six times the lag of the sensor.
LATE_S = 6 * WORLD.sensor.fall_s
WIDTH, HEIGHT, LEFT, BOTTOM = 860, 330, 46, 280
S_PX, W_PX = (WIDTH - LEFT - 14) / 40, 26.0
STYLE = """
    text { fill: #1f2328; font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
    .paper { fill: #f6f8fa } .line { stroke: #1f2328; fill: none; stroke-width: 1.2 } .dashed { stroke-dasharray: 6 4 }
    .idle { fill: #b6c2cf } .above { fill: #74aef0 } .late { fill: #f0a24b } .after { fill: #c39be0 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .paper { fill: #161b22 } .line { stroke: #e6edf3 }
      .idle { fill: #3d4855 } .above { fill: #1f5fa8 } .late { fill: #a4610f } .after { fill: #6f4794 }
    }
  """


def at(moment_s: float, power_w: float) -> str:
    """Return a point of the picture."""
    return f"{LEFT + S_PX * moment_s:.1f},{BOTTOM - W_PX * power_w:.1f}"


def area(name: str, moments_s: Sequence[float], powers_w: Sequence[float], floor_w: float) -> str:
    """Return the area between a curve and what lies below it."""
    curve = " ".join(map(at, moments_s, powers_w))
    return f'<polygon class="{name}" points="{at(moments_s[0], floor_w)} {curve} {at(moments_s[-1], floor_w)}"/>'


def line(*points: str, kind: str = "line") -> str:
    """Return a line through points."""
    return f'<polyline class="{kind}" points="{" ".join(points)}"/>'


def label(text: str, point: str, anchor: str = "middle") -> str:
    """Return a text that begins, ends or is centred at a point."""
    x, y = point.split(",")
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def picture() -> str:
    """Return the picture: what a late sensor shows of a load with a rhythm, and of a fan that runs on."""
    trial = draw_trial(WORLD, np.random.default_rng(8), gain_z=0.0)
    times_s = np.array([reading.taken_ns / 1e9 - BEGIN_S for reading in trial.trace.readings])
    powers_w = np.array([reading.power_w for reading in trial.trace.readings])
    begin_s, end_s = trial.run.timed.start_ns / 1e9 - BEGIN_S, trial.run.timed.end_ns / 1e9 - BEGIN_S
    idle_w, fan_w, stops_s = WORLD.idle_w, WORLD.idle_w + 1.0, end_s + 6.0

    def part(name: str, from_s: float, to_s: float, floor_w: float) -> str:
        inside_s = np.concatenate(([from_s], times_s[(times_s > from_s) & (times_s < to_s)], [to_s]))
        return area(name, inside_s.tolist(), np.maximum(np.interp(inside_s, times_s, powers_w), floor_w).tolist(), floor_w)

    queries_s = [query_ns / 1e9 - BEGIN_S for query_ns in trial.run.queries.starts_ns[:2]] if trial.run.queries else [0.0, 0.0]
    shapes = [
        area("idle", [begin_s, end_s], [idle_w, idle_w], 0),
        part("above", begin_s, end_s, idle_w),
        part("after", end_s, stops_s + LATE_S, idle_w),
        part("late", end_s, end_s + LATE_S, fan_w),
        *(line(at(moment_s, 0), at(moment_s, 9.3)) for moment_s in (begin_s, end_s)),
        line(at(0, idle_w), at(40, idle_w), kind="line dashed"),
        line(at(0, 9.3), at(0, 0), at(40, 0)),
        line(*map(at, times_s.tolist(), powers_w.tolist())),
        line(*(at(moment_s, level_w) for moment_s, level_w in zip(np.repeat(queries_s, 2), (7.2, 7.4, 7.4, 7.2), strict=True))),
    ]
    texts = [
        label("W", at(-1.2, 9)), *(label(str(watts), at(-0.4, watts - 0.15), "end") for watts in (2, 4, 6, 8)),
        label("idle before", at(6, 9.6)), label("timed part: from the first query to the last", at(20, 9.6)),
        label("idle after", at(34, 9.6)), label("idle power", at(0.4, idle_w + 0.45), "start"),
        label("a query", at(queries_s[0] + 0.2, 7.7), "start"),
        label("energy above idle: net", at(20, 3.6)), label("idle power: in gross only", at(20, 1.1)),
        label("shown late: counted", at(end_s + 1.4, 5.2), "start"),
        label("a fan runs on: stated apart", at(end_s + 1.4, 1.3), "start"),
        label("Gross energy = blue + orange + grey; net energy = blue + orange. Readings fall at random moments.", at(19, -1.2)),
    ]  # fmt: skip
    body = "\n".join(f"  {shape}" for shape in (*shapes, *texts))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    paper = f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n  <style>{STYLE}</style>\n  {paper}\n{body}\n</svg>\n'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")

"""A small writer of SVG pictures that are legible on a light and on a dark page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

Point = tuple[float, float]
STYLE = """
    text {
      fill: #1f2328; font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif
    }
    .mono { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
    .title { font-weight: 600 } .small { font-size: 12px } .soft { fill: #59636e }
    .paper { fill: #f6f8fa } .box { fill: #e2e8ee } .band { fill: #dce6df }
    .ink { stroke: #1f2328 } .grid { stroke: #d1d9e0 }
    .a { stroke: #0a66c2; color: #0a66c2 } .b { stroke: #b35900; color: #b35900 }
    .truth { stroke: #8250df; color: #8250df }
    polyline { fill: none; stroke-width: 1.2 } .thick { stroke-width: 5 }
    .strong { stroke-width: 3 } .dashed { stroke-dasharray: 6 4 }
    circle { fill: currentColor; stroke: none }
    .idle { fill: #b6c2cf } .above { fill: #74aef0 } .late { fill: #f0a24b }
    .after { fill: #c39be0 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .soft { fill: #9198a1 } .paper { fill: #161b22 }
      .box { fill: #2d333b } .band { fill: #1f3327 }
      .ink { stroke: #e6edf3 } .grid { stroke: #3d444d }
      .a { stroke: #58a6ff; color: #58a6ff } .b { stroke: #e3933a; color: #e3933a }
      .truth { stroke: #bf9dff; color: #bf9dff }
      .idle { fill: #3d4855 } .above { fill: #1f5fa8 } .late { fill: #a4610f }
      .after { fill: #6f4794 }
    }
  """


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale from values to pixels, logarithmic if `is_log`."""

    low: float
    high: float
    from_px: float
    to_px: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; a value beyond the ends is drawn at the end."""
        inside = min(max(value, self.low), self.high)
        low, high, at = (
            map(math.log, (self.low, self.high, inside))
            if self.is_log
            else (self.low, self.high, inside)
        )
        return self.from_px + (at - low) / (high - low) * (self.to_px - self.from_px)


@dataclass(slots=True)
class Canvas:
    """A picture of this size, in pixels; later shapes cover earlier ones."""

    width: int
    height: int
    shapes: list[str] = field(default_factory=list)

    def rect(self, corner: Point, size: Point, kind: str) -> None:
        self.shapes.append(
            f'<rect class="{kind}" x="{corner[0]:.1f}" y="{corner[1]:.1f}" width="{size[0]:.1f}" '
            f'height="{size[1]:.1f}" rx="4"/>'
        )

    def line(self, *points: Point, kind: str = "ink") -> None:
        self.shapes.append(f'<polyline class="{kind}" points="{_joined(points)}"/>')

    def area(self, points: Sequence[Point], kind: str) -> None:
        self.shapes.append(f'<polygon class="{kind}" points="{_joined(points)}"/>')

    def dot(self, at: Point, kind: str, radius: float = 3.5) -> None:
        self.shapes.append(
            f'<circle class="{kind}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:g}"/>'
        )

    def truth(self, x: float, y: float) -> None:
        """Mark a true value across an interval at this height."""
        self.line((x, y - 13), (x, y + 13), kind="truth strong")

    def text(self, text: str, at: Point, kind: str = "", anchor: str = "start") -> None:
        """Write a text that begins (start), is centred (middle) or ends (end) at a point."""
        self.shapes.append(
            f'<text class="{kind}" x="{at[0]:.1f}" y="{at[1]:.1f}" '
            f'text-anchor="{anchor}">{escape(text)}</text>'
        )

    def interval(self, low: float, middle: float, high: float, y: float, kind: str) -> None:
        """Draw a horizontal interval with its middle, in pixels."""
        self.line((low, y), (high, y), kind=f"{kind} thick")
        self.dot((middle, y), kind, 6)

    def axis(self, scale: Scale, y: float, ticks: Sequence[tuple[float, str]], top: float) -> None:
        """Draw a horizontal axis at `y` with its ticks, whose lines reach up to `top`."""
        for value, label in ticks:
            self.line((scale(value), y), (scale(value), top), kind="grid")
            self.text(label, (scale(value), y + 16), "small soft", "middle")

    def svg(self) -> str:
        body = "\n".join(f"  {shape}" for shape in self.shapes)
        size = (
            f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        )
        paper = f'<rect class="paper" width="{self.width}" height="{self.height}" rx="6"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n  <style>{STYLE}</style>\n  '
            f"{paper}\n{body}\n</svg>\n"
        )


def _joined(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)

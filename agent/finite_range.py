"""A number on the command line that is one: click's ranges let `nan` and `inf` through, which no clock and no plan can follow."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A range of numbers without `nan` and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that `value` says."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number of this range: give a finite one", param, ctx)
        return number

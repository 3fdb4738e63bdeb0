"""A figure over parts of the images: what its bounds, and those of its difference to another model, are computed from."""

from collections.abc import Callable, Sequence

import numpy as np

# Parts of the delete-a-group jackknife: so many evaluations an error costs, and one fewer are its degrees of freedom.
PARTS = 20
FREEDOM = PARTS - 1
_SEED = 0


def without_parts(members: Sequence[int], figure: Callable[[Sequence[int]], float | None]) -> tuple[float, ...]:
    """Return a figure of the images (by number) without one of twenty parts of them after the other, drawn with a fixed seed.

    Two models on the same images get the same parts, so that their difference can be bounded pair by pair. Empty where the images are
    too few, or all that is to be found lies in a few.
    """
    if len(members) < PARTS:
        return ()
    shuffled = np.random.RandomState(_SEED).permutation(sorted(members))
    values = [figure([number for number in members if number not in out]) for out in map(set, np.array_split(shuffled, PARTS))]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == PARTS else ()

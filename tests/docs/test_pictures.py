"""Facts about the pictures of the documentation.

Pages show all of them, one command makes them, and intervals hold the truths.
"""

import re
from pathlib import Path

import numpy as np

from edgemeter.agent.energy.per_inference import assess
from tests.fixtures.energy_worlds import draw_trial
from tests.fixtures.own_imports import ROOT
from tools.pictures import known_truth
from tools.pictures.__main__ import DRAWN, IMAGES, PHOTOGRAPHED

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
SHOWN = re.compile(r"""(?:!\[[^\]]*\]\(|src="|srcset=")(?!https?:)([^)"]+)""")


def test_pages_show_every_picture_and_none_that_is_missing():
    """A picture that no page shows has no reader, and one that is missing leaves a gap."""
    shown_paths = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in SHOWN.findall(page.read_text(encoding="utf-8"))
    }
    assert shown_paths == set(IMAGES.iterdir())


def test_one_command_makes_the_pictures():
    """One command makes all the pictures, so that nobody has to remember where one came from."""
    made_names = {f"{name}.svg" for name in DRAWN} | {
        f"{name}-{theme}.png" for name in PHOTOGRAPHED for theme in ("light", "dark")
    }
    assert made_names == {path.name for path in IMAGES.iterdir()}


def test_the_energies_of_the_picture_hold_their_truths():
    """The intervals hold the truths in the caption, which the method does not know."""
    trial = draw_trial(known_truth.BOARD, np.random.default_rng(known_truth.SEED), gain_z=0.0)
    result, reason = assess(trial.trace, trial.run)
    assert result is not None, reason
    whole_mj = trial.run.timed.length_ns / 1e6 / trial.run.inferences
    truths_j = [round(power_w * whole_mj / 1000, 2) for power_w in (trial.gross_w, trial.net_w)]
    assert abs(result.gross_mj / 1000 - truths_j[0]) <= result.gross_u_mj / 1000
    assert abs(result.net_mj / 1000 - truths_j[1]) <= result.net_u_mj / 1000
    caption = Path(ROOT / "docs" / "explain" / "energy.md").read_text(encoding="utf-8")
    assert f"{truths_j[0]} J gross and {truths_j[1]} J net" in caption

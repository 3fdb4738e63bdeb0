"""Corruptions: seeded, stronger with every severity, and each what its name says."""

from itertools import product

import numpy as np
import pytest

from edgemeter.agent.base.corruption_draw import SEVERITIES
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_settings import CORRUPTIONS as OF_KINDS
from edgemeter.agent.contract.case_settings import corruption_names
from edgemeter.agent.vision.corruptions import CORRUPTIONS, corrupt
from tests.fixtures.rows import table_row

# Made once by numpy 2.4; RandomState promises the same of every version.
PINNED = [143, 143, 115, 132, 135, 96, 112, 100, 110, 139, 134, 152]
RANDOM = ("gaussian_noise", "shot_noise", "impulse_noise", "motion_blur")


@pytest.fixture(scope="module")
def photo():
    """Return a photograph of 96 x 80 with edges, a gradient and texture."""
    y, x = np.mgrid[:80, :96]
    texture = np.random.default_rng(0).integers(-20, 20, (80, 96))
    channels = [np.where((x // 16 + y // 16) % 2, 60, 190) + texture, 40 + 2 * x, 60 + y + texture]
    return np.clip(np.stack(channels, axis=-1), 0, 255).astype(np.uint8)


def apart(photo, other):
    """Return the mean difference of two photographs, in grey levels."""
    return float(np.abs(photo.astype(int) - other.astype(int)).mean())


def test_every_severity_is_worse_than_the_one_before(photo):
    """Further from the photograph, at its size, as pixels."""
    for name in CORRUPTIONS:
        with table_row(name):
            corrupted = [corrupt(photo, name, severity, 0, "a") for severity in SEVERITIES]
            assert all((pixels.shape, pixels.dtype) == (photo.shape, np.uint8) for pixels in corrupted)
            distances = [apart(pixels, photo) for pixels in corrupted]
            # A motion's angle is drawn anew at each severity, and a mosaic of texture is as far from it whatever its grain.
            assert distances == sorted(distances) or name in ("motion_blur", "pixelate")
            assert distances[0] > 1


def test_the_same_seed_and_photograph_give_the_same_pixels(photo):
    """Another seed or another photograph gives other noise, where there is noise."""
    for name in CORRUPTIONS:
        first = corrupt(photo, name, 3, 0, "a")
        assert np.array_equal(first, corrupt(photo, name, 3, 0, "a")), f"{name!r}"
        variants = [corrupt(photo, name, 3, 1, "a"), corrupt(photo, name, 3, 0, "b")]
        assert [np.array_equal(first, other) for other in variants] == [name not in RANDOM] * 2, f"{name!r}"


def test_the_noise_is_the_same_on_every_machine():
    """The stream of numbers is frozen: these pixels come out everywhere."""
    grey = np.full((2, 2, 3), 128, np.uint8)
    assert corrupt(grey, "gaussian_noise", 1, 0, "a").ravel().tolist() == PINNED


def test_noise_has_the_strength_of_the_literature():
    """On mid-grey: sd 0.08 x 255; of the photons the root; impulses hit 3% of the values, black and white alike."""
    grey = np.full((200, 200, 3), 128, np.uint8)
    assert corrupt(grey, "gaussian_noise", 1, 0, "a").std() == pytest.approx(0.08 * 255, rel=0.02)
    assert corrupt(grey, "shot_noise", 1, 0, "a").std() == pytest.approx((128 / 255 / 60) ** 0.5 * 255, rel=0.02)
    hit = corrupt(grey, "impulse_noise", 1, 0, "a")
    assert (hit != 128).mean() == pytest.approx(0.03, rel=0.05)
    assert (hit == 0).sum() == pytest.approx((hit == 255).sum(), rel=0.1)


def point(name, severity):
    """Return what becomes of one white point in the middle of black: how it spreads, as shares of the light."""
    black = np.zeros((101, 101, 3), np.uint8)
    black[40:61, 40:61] = 255
    return corrupt(black, name, severity, 0, "a")[..., 0].astype(float)


def test_a_blur_keeps_the_light_and_the_place():
    """The sum stays, and so does the centre of mass: objects stay in their boxes."""
    for name in ["gaussian_blur", "defocus_blur"]:
        with table_row(name):
            y, x = np.mgrid[:101, :101]
            for severity in SEVERITIES:
                spread = point(name, severity)
                assert spread.sum() == pytest.approx(21 * 21 * 255, rel=0.02)
                assert (spread * x).sum() / spread.sum() == pytest.approx(50, abs=0.6)
                assert (spread * y).sum() / spread.sum() == pytest.approx(50, abs=0.6)


class FixedAngle:
    """Draws this angle."""

    def __init__(self, degrees):
        self.degrees = degrees

    def uniform(self, low, high):
        """Return it."""
        assert low <= self.degrees <= high
        return self.degrees


# A white bar (rows 20 to 39, columns 30 to 39 of 60 x 60) after imagecorruptions 1.1.2, severity 5, -40 degrees: every sixth pixel.
SMEARED = {
    24: [0, 0, 0, 0, 0, 102, 65, 0, 0, 0],
    30: [0, 0, 0, 7, 86, 155, 65, 0, 0, 0],
    36: [0, 0, 11, 53, 111, 155, 65, 0, 0, 0],
    42: [0, 6, 28, 61, 111, 102, 12, 0, 0, 0],
    48: [0, 8, 28, 61, 49, 0, 0, 0, 0, 0],
    54: [0, 8, 28, 19, 0, 0, 0, 0, 0, 0],
}


def test_motion_smears_as_imagecorruptions_does():
    """Direction, length and weights of the trail; theirs cuts fractions off."""
    bar = np.zeros((60, 60, 3), np.uint8)
    bar[20:40, 30:40] = 255
    smeared = CORRUPTIONS["motion_blur"](bar, 4, FixedAngle(-40.0))[..., 0].astype(int)
    for row, values in SMEARED.items():
        assert smeared[row, ::6] == pytest.approx(values, abs=1)


def test_a_mosaic_has_sharp_edges():
    """Enlarged without averaging, as imagecorruptions does: 0.6 of 14 columns are 8 different ones."""
    noise = np.random.RandomState(0).randint(0, 256, (10, 14, 3)).astype(np.uint8)
    assert len(np.unique(corrupt(noise, "pixelate", 1, 0, "a"), axis=1).swapaxes(0, 1)) == 8


def test_a_plain_surface_stays_plain_under_blur():
    """Also at the border, and in a photograph smaller than the blur."""
    for size, name in product([(1, 1), (3, 50), (17, 19)], ["gaussian_blur", "defocus_blur", "motion_blur"]):
        plain = np.full((*size, 3), 77, np.uint8)
        assert np.array_equal(corrupt(plain, name, 5, 0, "a"), plain), f"{name!r}, {size!r}"


def test_brightness_keeps_the_hue(photo):
    """A tenth is added to the brightest channel, the others grow with it; black becomes grey."""
    brighter = corrupt(np.array([[[100, 50, 0], [0, 0, 0]]], np.uint8), "brightness", 1, 0, "a")
    assert brighter.tolist() == [[[126, 63, 0], [26, 26, 26]]]
    assert corrupt(photo, "brightness", 5, 0, "a").max() == 255


def test_contrast_draws_to_the_mean():
    """0.4 of the distance is left at the first severity."""
    halves = np.array([[[50, 50, 50], [150, 150, 150]]], np.uint8)
    assert corrupt(halves, "contrast", 1, 0, "a").tolist() == [[[80, 80, 80], [120, 120, 120]]]


def test_a_mosaic_is_coarser_at_every_severity(photo):
    """Fewer steps from pixel to pixel: a quarter of the pixels' sides is left at the last."""
    mosaics = [corrupt(photo, "pixelate", severity, 0, "a") for severity in SEVERITIES]
    steps = [int((np.diff(mosaic.astype(int), axis=1) != 0).any(axis=2).sum(axis=1).max()) for mosaic in mosaics]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 96 // 4 - 1


def test_names_are_taken_in_the_order_of_the_table():
    """All, some, and never one that there is not."""
    assert OF_KINDS["image"] == tuple(CORRUPTIONS)
    assert corruption_names(["contrast", "gaussian_noise"]) == ("gaussian_noise", "contrast")
    with pytest.raises(ConfigError, match="no corruption is called 'rain': there are gaussian_noise"):
        corruption_names(["gaussian_noise", "rain"])

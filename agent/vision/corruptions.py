"""Corruptions of photographs in five severities, after ImageNet-C, for asking how much accuracy bad light, noise or a bad lens costs.

Kinds and constants are those of ImageNet-C (D. Hendrycks and T. Dietterich, arXiv:1903.12261; the constants from its authors' program,
hendrycks/robustness, `ImageNet-C/create_c/make_imagenet_c.py`), written anew with numpy and Pillow. They were chosen for photographs of
224 x 224; here, as C. Michaelis et al. do for detectors (arXiv:1907.07484, package imagecorruptions), they are applied to the photograph at
its own size, before it is resized for the model. On six photographs of COCO each kind and severity moves the pixels as far as
imagecorruptions 1.1.2 does, within 4% of the mean difference; the draws of noise and angle are others.
Left out are those that need other pictures or libraries (frost, snow, fog, glass and zoom blur, elastic).
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.corruption_draw import corruption_draw
from edgemeter.agent.vision import photograph
from edgemeter.agent.vision.photograph import Pixels

Floats = NDArray[np.float64]
# RandomState's streams are frozen: the same noise with every numpy on every machine. Those of the newer Generator may change.
Draw = np.random.RandomState

# By severity. Source: make_imagenet_c.py (see above), the function of the same name.
_GAUSSIAN_NOISE_SD = (0.08, 0.12, 0.18, 0.26, 0.38)
_SHOT_NOISE_PHOTONS = (60, 25, 12, 5, 3)
_IMPULSE_NOISE_RATIO = (0.03, 0.06, 0.09, 0.17, 0.27)
_GAUSSIAN_BLUR_SD_PX = (1, 2, 3, 4, 6)
_DEFOCUS_BLUR_RADIUS_PX = (3, 4, 6, 8, 10)
_DEFOCUS_BLUR_EDGE_SD_PX = (0.1, 0.5, 0.5, 0.5, 0.5)
_MOTION_BLUR_RADIUS_PX = (10, 15, 15, 15, 20)
_MOTION_BLUR_SD_PX = (3, 5, 8, 12, 15)
_MOTION_BLUR_LARGEST_ANGLE = 45.0
_BRIGHTNESS_ADDED = (0.1, 0.2, 0.3, 0.4, 0.5)
_CONTRAST_KEPT = (0.4, 0.3, 0.2, 0.1, 0.05)
_JPEG_QUALITY = (25, 18, 15, 10, 7)
_PIXELATE_RATIO = (0.6, 0.5, 0.4, 0.3, 0.25)


def corrupt(pixels: Pixels, name: str, severity: int, seed: int, identity: str) -> Pixels:
    """Return the photograph (uint8 [h, w, 3], RGB) corrupted in one of the table's ways, with a severity from 1 to 5.

    By the run's `seed` and its `identity` (the hash of its file) every photograph has noise of its own, the same on every machine.
    """
    return CORRUPTIONS[name](pixels, severity - 1, corruption_draw(name, severity, seed, identity))


def _gaussian_noise(pixels: Pixels, level: int, draw: Draw) -> Pixels:
    return _pixels(pixels / 255 + draw.normal(0, _GAUSSIAN_NOISE_SD[level], pixels.shape))


def _shot_noise(pixels: Pixels, level: int, draw: Draw) -> Pixels:
    photons = _SHOT_NOISE_PHOTONS[level]
    return _pixels(draw.poisson(pixels / 255 * photons) / photons)


def _impulse_noise(pixels: Pixels, level: int, draw: Draw) -> Pixels:
    is_hit = draw.random_sample(pixels.shape) < _IMPULSE_NOISE_RATIO[level]
    is_white = draw.random_sample(pixels.shape) < 0.5
    return np.where(is_hit, np.where(is_white, 255, 0), pixels).astype(np.uint8)


def _gaussian_blur(pixels: Pixels, level: int, _draw: Draw) -> Pixels:
    sd = _GAUSSIAN_BLUR_SD_PX[level]
    # Cut off where scikit-image does: at four standard deviations.
    line = _bell(np.arange(-4 * sd, 4 * sd + 1), sd)
    return _filtered(pixels, np.outer(line, line), "edge")


def _defocus_blur(pixels: Pixels, level: int, _draw: Draw) -> Pixels:
    """Spread every point to a disk, whose edge is softened."""
    radius = _DEFOCUS_BLUR_RADIUS_PX[level]
    reach = 1 if radius <= 8 else 2
    line = np.arange(-radius - reach, radius + reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    soft = _bell(np.arange(-reach, reach + 1), _DEFOCUS_BLUR_EDGE_SD_PX[level])
    rows = sum(weight * np.roll(disk, shift, 0) for shift, weight in zip(range(-reach, reach + 1), soft, strict=True))
    kernel = sum(weight * np.roll(rows, shift, 1) for shift, weight in zip(range(-reach, reach + 1), soft, strict=True))
    return _filtered(pixels, np.asarray(kernel), "reflect")


def _motion_blur(pixels: Pixels, level: int, draw: Draw) -> Pixels:
    """Draw every point out along a line at a random angle, fading like one half of a bell.

    As in imagecorruptions the trail begins where the point was, so that objects lean out of their boxes by up to a dozen pixels.
    """
    angle = math.radians(draw.uniform(-_MOTION_BLUR_LARGEST_ANGLE, _MOTION_BLUR_LARGEST_ANGLE))
    steps = np.arange(2 * _MOTION_BLUR_RADIUS_PX[level] + 1)
    reach = len(steps) - 1
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    x, y = (np.ceil(steps * along - 0.5).astype(int) for along in (math.cos(angle), math.sin(angle)))
    np.add.at(kernel, (reach - y, reach - x), _bell(steps, _MOTION_BLUR_SD_PX[level]))
    return _filtered(pixels, kernel, "edge")


def _brightness(pixels: Pixels, level: int, _draw: Draw) -> Pixels:
    """Add to V of HSV: hue and saturation stay, so all channels grow by the same factor."""
    real = pixels / 255
    value = real.max(axis=2, keepdims=True)
    brighter = np.minimum(value + _BRIGHTNESS_ADDED[level], 1)
    return _pixels(np.where(value > 0, real * brighter / np.where(value > 0, value, 1), brighter))


def _contrast(pixels: Pixels, level: int, _draw: Draw) -> Pixels:
    real = pixels / 255
    mean = real.mean(axis=(0, 1), keepdims=True)
    return _pixels((real - mean) * _CONTRAST_KEPT[level] + mean)


def _pixelate(pixels: Pixels, level: int, _draw: Draw) -> Pixels:
    return photograph.as_box_mosaic(pixels, _PIXELATE_RATIO[level])


def _jpeg(pixels: Pixels, level: int, _draw: Draw) -> Pixels:
    return photograph.as_jpeg(pixels, _JPEG_QUALITY[level])


def _bell(places: NDArray[np.integer], sd: float) -> Floats:
    weights = np.exp(-(places.astype(np.float64) ** 2) / (2 * sd * sd))
    return np.asarray(weights / weights.sum())


def _pixels(real: Floats) -> Pixels:
    return np.rint(np.clip(real, 0, 1) * 255).astype(np.uint8)


def _filtered(pixels: Pixels, kernel: Floats, border: str) -> Pixels:
    """Return the photograph convolved with a kernel of odd sides, whose sum is made 1; the border is continued as numpy's `pad` does."""
    half_y, half_x = kernel.shape[0] // 2, kernel.shape[1] // 2
    height, width = pixels.shape[:2]
    if border == "reflect" and min(height - half_y, width - half_x) <= 0:
        border = "symmetric"
    sides = tuple(_smooth(size + 2 * half) for size, half in ((height, half_y), (width, half_x)))
    spectrum = np.fft.rfft2(kernel / kernel.sum(), sides)
    blurred = np.empty(pixels.shape)
    for channel in range(3):
        padded = np.pad(pixels[..., channel].astype(np.float64), ((half_y, half_y), (half_x, half_x)), border)  # type: ignore[call-overload]
        convolved = np.fft.irfft2(np.fft.rfft2(padded, sides) * spectrum, sides)
        blurred[..., channel] = convolved[2 * half_y : 2 * half_y + height, 2 * half_x : 2 * half_x + width]
    return _pixels(blurred / 255)


def _smooth(size: int) -> int:
    """Return the next length with no prime factor above 5, which a Fourier transform is fast at."""
    while True:
        remainder = size
        for prime in (2, 3, 5):
            while remainder % prime == 0:
                remainder //= prime
        if remainder == 1:
            return size
        size += 1


CORRUPTIONS: Mapping[str, Callable[[Pixels, int, Draw], Pixels]] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "impulse_noise": _impulse_noise,
    "defocus_blur": _defocus_blur,
    "gaussian_blur": _gaussian_blur,
    "motion_blur": _motion_blur,
    "brightness": _brightness,
    "contrast": _contrast,
    "pixelate": _pixelate,
    "jpeg_compression": _jpeg,
}

"""Write corrupted copies of a folder of images.

The names stay, so the same annotations fit every copy.

python docs/examples/corrupt_photographs.py PHOTOGRAPHS OUT
edgemeter accuracy MODEL --data OUT/gaussian_noise-3 --annotations ANNOTATIONS

The kinds and severities are those of ImageNet-C that need only NumPy and Pillow (D. Hendrycks and
T. Dietterich, arXiv:1903.12261; constants from hendrycks/robustness, make_imagenet_c.py). The noise
of an image depends only on its name, so it is the same everywhere.
"""

import hashlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter, ImageOps

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}


def _pixels(real: Any) -> Image.Image:
    return Image.fromarray(np.rint(np.clip(real, 0, 1) * 255).astype(np.uint8))


def _noise(photo: Image.Image, sd: float, draw: np.random.RandomState) -> Image.Image:
    return _pixels(np.asarray(photo) / 255 + draw.normal(0, sd, (photo.height, photo.width, 3)))


def _blur(photo: Image.Image, radius: float, _draw: np.random.RandomState) -> Image.Image:
    return photo.filter(ImageFilter.GaussianBlur(radius))


def _contrast(photo: Image.Image, kept: float, _draw: np.random.RandomState) -> Image.Image:
    mean = (np.asarray(photo) / 255).mean(axis=(0, 1))
    return _pixels((np.asarray(photo) / 255 - mean) * kept + mean)


def _pixelate(photo: Image.Image, ratio: float, _draw: np.random.RandomState) -> Image.Image:
    size = max(int(photo.width * ratio), 1), max(int(photo.height * ratio), 1)
    return photo.resize(size, Image.Resampling.BOX).resize(photo.size, Image.Resampling.NEAREST)


def _jpeg(photo: Image.Image, quality: float, _draw: np.random.RandomState) -> Image.Image:
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=int(quality))
    return Image.open(file)


CORRUPTIONS: dict[
    str,
    tuple[Callable[[Image.Image, float, np.random.RandomState], Image.Image], tuple[float, ...]],
] = {
    "gaussian_noise": (_noise, (0.08, 0.12, 0.18, 0.26, 0.38)),
    "gaussian_blur": (_blur, (1, 2, 3, 4, 6)),
    "contrast": (_contrast, (0.4, 0.3, 0.2, 0.1, 0.05)),
    "pixelate": (_pixelate, (0.6, 0.5, 0.4, 0.3, 0.25)),
    "jpeg_compression": (_jpeg, (25, 18, 15, 10, 7)),
}


def main(photographs: str, out: str) -> None:
    """Write a folder OUT/KIND-SEVERITY for each kind and each severity from 1 to 5.

    It has the same folders of classes.
    """
    for path in sorted(
        path for path in Path(photographs).rglob("*") if path.suffix.lower() in SUFFIXES
    ):
        name = path.relative_to(photographs)
        photo = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
        for kind, (corrupted, strengths) in CORRUPTIONS.items():
            for severity, strength in enumerate(strengths, 1):
                seed = hashlib.sha256(f"{kind}:{severity}:{name.as_posix()}".encode()).digest()
                target = Path(out, f"{kind}-{severity}", name)
                target.parent.mkdir(parents=True, exist_ok=True)
                draw = np.random.RandomState(np.frombuffer(seed, "<u4"))
                corrupted(photo, strength, draw).convert("RGB").save(
                    target, quality=100, subsampling=0
                )


if __name__ == "__main__":
    main(*sys.argv[1:])

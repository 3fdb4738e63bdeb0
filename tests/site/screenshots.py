"""Takes the pictures of the documentation: the real page of `make demo`, in Debian's chromium, light and dark, into docs/images/.

python -m tests.site.screenshots                      runs the demo first (two minutes)
python -m tests.site.screenshots report-fleet.html    of a page that is there
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.fixtures.browser import Browser, find_chromium

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
WIDTH = 1280
# Address and height of each view.
VIEWS = {
    "overview": ("overview", 800),
    "model": ("model?model=edgemeter-shapes", 800),
    "compare": ("compare?board=simulated+Raspberry+Pi+5&model=edgemeter-shapes", 1040),
}


def take(page: Path, folder: Path) -> list[Path]:
    """Return the pictures of a page of one file, a light and a dark one of each view."""
    taken = []
    # What the browser starts may write to its profile while it ends.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, Browser(find_chromium(), Path(profile)) as browser:
        for name, (address, height) in VIEWS.items():
            for theme in ("light", "dark"):
                tab = browser.open(f"{page.resolve().as_uri()}#/{address}", width=WIDTH, height=height, dark=theme == "dark", offline=True)
                tab.drawn()
                taken.append(_small(tab.screenshot(folder / f"{name}-{theme}.png")))
                assert tab.complaints() == [], tab.complaints()
    return taken


def _small(path: Path) -> Path:
    """Keep a picture in 256 colours: a third of the size, and the same to the eye."""
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256).save(path, optimize=True)
    return path


def main(arguments: list[str]) -> None:
    """Take the pictures of the page named, or of the demo's."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(arguments[0]) if arguments else Path(folder) / "report-fleet.html"
        if not arguments:
            command = [
                sys.executable,
                "-m",
                "edgemeter.agent.cli.main",
                "demo",
                "--html",
                f"{folder}/report.html",
                "--home",
                f"{folder}/home",
            ]
            subprocess.run(command, check=True, timeout=1200)
        IMAGES.mkdir(exist_ok=True)
        for path in take(page, IMAGES):
            print(path.relative_to(IMAGES.parents[1]), path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])

import runpy
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from edgemeter.agent.datasets.dataset import open_folder

ROOT = Path(__file__).resolve().parents[2]
SCENES = ROOT / "models" / "scenes"


def test_each_corrupted_copy_is_a_data_set_like_any_other(tmp_path):
    """Each corrupted copy is a data set, further from the original with every severity.

    Names and sizes are the same, under the same annotations, and a second run gives the same.
    """
    (tmp_path / "images").mkdir()
    for path in sorted((SCENES / "images").iterdir())[:2]:
        shutil.copy(path, tmp_path / "images")
    main = runpy.run_path(str(ROOT / "docs" / "examples" / "corrupt_photographs.py"))["main"]
    for out in ("first", "second"):
        main(tmp_path / "images", tmp_path / out)
    names = sorted(path.name for path in (tmp_path / "images").iterdir())
    copies = sorted((tmp_path / "first").iterdir())
    assert len(copies) == 25
    apart = []
    for copy in copies:
        data = open_folder(copy)
        assert [item.name for item in data.items] == names
        assert data.sha256 == open_folder(tmp_path / "second" / copy.name).sha256
        corrupted, clean = (
            np.asarray(Image.open(folder / names[0]).convert("RGB"), float)
            for folder in (copy, tmp_path / "images")
        )
        apart.append(abs(corrupted - clean).mean())
    assert all(0 < first < last for first, last in zip(apart[::5], apart[4::5], strict=True))

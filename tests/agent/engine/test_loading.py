"""What the record holds of model and data as they were loaded."""

from PIL import Image

from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.engine.loading import describe_dataset


def test_the_record_counts_photographs_that_had_to_be_changed(tmp_path):
    """Turned by EXIF, alpha dropped, CMYK converted, 16 bits reduced: each by itself, over all photographs."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (6, 4)).save(tmp_path / name, exif=exif)
    Image.new("RGBA", (6, 4)).save(tmp_path / "c.png")
    Image.new("CMYK", (6, 4)).save(tmp_path / "d.jpg")
    Image.new("I;16", (6, 4)).save(tmp_path / "e.png")
    Image.new("RGB", (6, 4)).save(tmp_path / "f.png")
    described = describe_dataset(open_folder(tmp_path), 0)
    counts = (described.turned_by_exif, described.alpha_dropped, described.cmyk_converted, described.reduced_to_8_bit)
    assert (described.images, counts) == (6, (2, 1, 1, 1))


def test_noise_has_no_photographs_to_count():
    """Not counted is null, not 0."""
    described = describe_dataset(None, 0)
    assert (described.images, described.turned_by_exif, described.alpha_dropped) == (0, None, None)

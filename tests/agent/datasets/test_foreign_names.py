"""Facts about file names, image ids and categories as other tools write them.

They are matched where that is unambiguous, with a note; else there is one clear error.
"""

import json
from unicodedata import normalize

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.datasets.foreign_names import AnnotatedImage, match_image_ids
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth, open_with_truth


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two files that are called photographs, and one below."""
    images = tmp_path / "images"
    (images / "below").mkdir(parents=True)
    for name in (
        "photo_0.png",
        "photo_1.png",
        "below/photo_2.png",
        "caf\u00e9 1.png",
        "photo-50%.png",
        "0a1b2c3d-mug.png",
    ):
        (images / name).write_bytes(name.encode())
    return images


def naming(name):
    truth = make_truth(1)
    truth["images"][0]["file_name"] = name
    return truth


def test_a_file_name_of_another_system_or_tool_is_matched_by_its_base_name(folder):
    """One note says so, and there is none where the file exists under its written name."""
    for name, file in [
        ("photo_0.png", "photo_0.png"),
        ("below/photo_2.png", "below/photo_2.png"),
        ("photo-50%.png", "photo-50%.png"),
        (r"D:\data\train\photo_0.png", "photo_0.png"),
        (r"images\below\photo_2.png", "below/photo_2.png"),
        ("/home/ann/photos/photo_1.png", "photo_1.png"),
        ("../photos/photo_1.png", "photo_1.png"),
        ("photos/caf%C3%A9%201.png", "caf\u00e9 1.png"),
        (normalize("NFD", "caf\u00e9 1.png"), "caf\u00e9 1.png"),
        ("/data/upload/3/a1b2c3d4-photo_1.png", "photo_1.png"),
        ("/data/local-files/?d=photo_1.png", "photo_1.png"),
        (r"/data/local-files/?d=set%5Cphoto_1.png", "photo_1.png"),
        ("mug.png", "0a1b2c3d-mug.png"),
    ]:
        with table_row(name):
            data = open_with_truth(folder, naming(name))
            assert [item.path for item in data.items] == [folder / file]
            assert data.image_ids == (100,)
            text = (
                f"1 of 1 file names of the annotations are matched by base name (first {name!r} "
                f"with {file!r})"
            )
            assert data.warnings == (() if name == file else (text,))


def test_a_name_that_may_be_several_files_or_leads_out_of_the_folder_is_refused(folder):
    """No file is guessed, and no file is read from elsewhere."""
    (folder / "0a1b2c3e-mug.png").touch()
    for name, words in [
        (
            "mug.png",
            "'mug.png' in the annotations may mean '0a1b2c3d-mug.png' or '0a1b2c3e-mug.png'",
        ),
        ("/etc/passwd", "1 of the 1 files .* first '/etc/passwd'"),
        ("../truth.json", "1 of the 1 files .* first '../truth.json'"),
        ("PHOTO_0.png", "1 of the 1 files .* first 'PHOTO_0.png'"),
    ]:
        with table_row(name), pytest.raises(ConfigError, match=words):
            open_with_truth(folder, naming(name))
    truth = make_truth(2)
    for image, name in zip(truth["images"], ("a/photo_0.png", "b/photo_0.png"), strict=True):
        image["file_name"] = name
    with pytest.raises(
        ConfigError,
        match=r"'a/photo_0.png' and 'b/photo_0.png' in the annotations all mean 'photo_0.png'",
    ):
        open_with_truth(folder, truth)


def test_a_subset_does_not_depend_on_how_a_name_is_matched(folder):
    """A subset is chosen by the names in the annotations.

    A device that has those photographs alone chooses the same.
    """
    truth = make_truth(2)
    for image in truth["images"]:
        image["file_name"] = rf"C:\photos\{image['file_name']}"
    path = folder.parent / "truth.json"
    path.write_text(json.dumps(truth))
    (item,) = open_folder(folder, path, subset=1).items
    (
        folder / next(name for name in ("photo_0.png", "photo_1.png") if name != item.path.name)
    ).unlink()
    assert open_folder(folder, path, subset=1).items == (item,)


def test_images_whose_ids_are_text_are_numbered(folder):
    """Annotations refer to an image by the same text, by the stem, or by the file name.

    The written id is kept.
    """
    for text, refer in [
        (True, str),
        (True, "photo_{}".format),
        (False, "photo_{}.png".format),
        (False, "10{}".format),
    ]:
        truth = make_truth(2)
        for number, image in enumerate(truth["images"]):
            image["id"] = str(number) if text else image["id"]
        for annotation in truth["annotations"]:
            annotation["image_id"] = refer(annotation["image_id"] - 100)
        with table_row(text, refer(0)):
            data = open_with_truth(folder, truth)
            boxes = [
                (annotation["image_id"], annotation["bbox"])
                for annotation in data.truth["annotations"]
            ]
            assert boxes == [
                (data.image_ids[index // 2], annotation["bbox"])
                for index, annotation in enumerate(truth["annotations"])
            ]
            assert [image["text_id"] for image in data.truth["images"]] == (
                ["0", "1"] if text else [None, None]
            )
            assert len(data.warnings) == (refer is not str)


def test_text_ids_that_are_listed_twice_or_of_no_image_are_refused(folder):
    """Ids that are text are checked as numbers are."""
    for ids, image_id, words in [
        (("a", "a"), "a", "image id 'a' is listed twice"),
        (("a", "b"), "c", "1 of 1 image ids .* first 'c'"),
    ]:
        truth = make_truth(2)
        for image, text in zip(truth["images"], ids, strict=True):
            image["id"] = text
        for annotation in truth["annotations"]:
            annotation["image_id"] = image_id
        with pytest.raises(ConfigError, match=words):
            open_with_truth(folder, truth)


IMAGES = [AnnotatedImage(id=number, file_name=f"images/{7 + number:03}.jpg") for number in range(4)]


def test_image_ids_are_read_in_the_one_way_that_fits_all():
    """Ids are read as numbers of stems where Ultralytics wrote them so.

    Where two readings fit, the ids themselves win with a note, and no other reading does.
    """
    for values, ids, notes in [
        ((0, 1, 3), (0, 1, 3), ()),
        (("0", "3"), (0, 3), ("the image ids in p are matched by ids as text (all 2)",)),
        (
            ("007", "010"),
            (0, 3),
            ("the image ids in p are matched by stems of file names (all 2)",),
        ),
        (("images/007.jpg",), (0,), ("the image ids in p are matched by file names (all 1)",)),
        (("other/008.jpg",), (1,), ("the image ids in p are matched by base names (all 1)",)),
        ((7, 8, 10), (0, 1, 3), ("the image ids in p are matched by stems as numbers (all 3)",)),
        ((), (), ()),
    ]:
        with table_row(values):
            assert match_image_ids(values, IMAGES, "p") == (
                dict(zip(values, ids, strict=True)),
                notes,
            )
    near = [AnnotatedImage(id=number, file_name=f"{number + 1}.jpg") for number in range(4)]
    matched, notes = match_image_ids([1, 2], near, "p")
    assert matched == {1: 1, 2: 2}
    assert notes == (
        "the image ids in p are taken as ids; as stems of file names they would mean other images",
    )
    with pytest.raises(
        ConfigError, match="may be ids as text or stems of file names, which mean other images"
    ):
        match_image_ids(["1", "2"], near, "p")
    with pytest.raises(
        ConfigError,
        match=r"2 of 3 image ids in p belong to no image in the annotations \(like 0, file "
        r"'images/007.jpg'\), first 9",
    ):
        match_image_ids([2, 9, "x"], IMAGES, "p")


def test_a_category_that_only_groups_others_is_left_out(folder):
    """Roboflow's first category owns no objects, and the others name it as their group.

    With an object of its own it is a category as any other.
    """
    truth = make_truth(2)
    truth["categories"] = [{"id": 0, "name": "pets-kzq1", "supercategory": "none"}] + [
        {**category, "supercategory": "pets-kzq1"} for category in truth["categories"]
    ]
    data = open_with_truth(folder, truth)
    assert [category["name"] for category in data.truth["categories"]] == ["cat", "dog"]
    assert [category["id"] for category in data.truth["groupings"]] == [0]
    (note,) = data.warnings
    assert note.startswith("'pets-kzq1': left out of the categories")
    truth["annotations"][0]["category_id"] = 0
    assert len(open_with_truth(folder, truth).truth["categories"]) == 3
    # COCO's person is the supercategory of itself.
    truth = make_truth(2, ("person", "dog", "cat"))
    truth["categories"][2]["supercategory"] = truth["categories"][0]["supercategory"] = "cat"
    truth["categories"][0]["supercategory"] = "person"
    assert len(open_with_truth(folder, truth).truth["categories"]) == 3

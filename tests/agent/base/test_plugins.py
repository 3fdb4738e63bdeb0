"""Facts about plug-ins of other packages.

A tiny package in a site folder of its own has entry points of every family.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import datasets, generators, power, runtimes, tasks
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.doctor.checks import PLUGIN_FAMILIES
from edgemeter.agent.recognition.recognise import UnknownFamilyError, recognised_family
from edgemeter.agent.vision import decoders
from edgemeter.agent.vision.decoders.family import UnknownModel
from tests.fixtures.plugin_site import install
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_loaded, tensors

FAMILIES = {
    family.ENTRY_POINTS: family
    for family in (runtimes, power, generators, decoders, tasks, datasets)
}
# Shared by all families: a constructor that accepts any argument, and the names that a family looks
# for.
MODULE = """
import numpy as np
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets import GroundTruth, Targets
from edgemeter.agent.vision.decoders import Detections

class Plain:
    def __init__(self, *given, **settings):
        self.given = given

class Corner(Plain):
    def decode(self, outputs, frame):
        return Detections(outputs[0][0], np.ones(1, np.float32), np.zeros(1, np.int32))

class Count(Plain):
    def prepare(self, index):
        return {"x": np.zeros(1, np.float32)}
    def answer(self, index, outputs):
        self.right = outputs[0][0] == list(self.given[2].targets.values())[index]
    def score(self, parts="all"):
        sha256 = self.given[2].sha256
        return Accuracy(metric="count", value=float(self.right), images=1, dataset_sha256=sha256)

class Counts:
    def recognises(self, folder, annotations):
        return annotations is not None and annotations.suffix == ".counts"
    def read(self, folder, annotations):
        rows = (line.split() for line in annotations.read_text().splitlines())
        return GroundTruth(Targets({name: int(count) for name, count in rows}), annotations)
"""
CLASSES = {
    decoders.ENTRY_POINTS: "Corner",
    tasks.ENTRY_POINTS: "Count",
    datasets.ENTRY_POINTS: "Counts",
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a site folder with the package `tinyplug`.

    The package registers a plug-in `tiny` in every family.
    """
    folder = tmp_path / "site"
    install(
        folder,
        "tinyplug",
        [(group, "tiny", f"tinyplug:{CLASSES.get(group, 'Plain')}") for group in FAMILIES],
        MODULE,
    )
    monkeypatch.delitem(__import__("sys").modules, "tinyplug", raising=False)
    monkeypatch.syspath_prepend(folder)
    return folder


def create(group, name):
    if group == decoders.ENTRY_POINTS:
        return decoders.create(make_card(name), make_loaded(tensors((1, 1, 4))))
    if group == tasks.ENTRY_POINTS:
        return tasks.create(make_card("any", name), make_loaded(), SimpleNamespace())
    return FAMILIES[group].create(name)


@pytest.mark.usefixtures("site")
def test_a_plug_in_of_another_package_is_listed_last_and_made():
    """Every family finds its plug-in by the same kind of entry in the package's metadata.

    A missing one is refused with a list of those there are, other packages' among them.
    """
    for group, family in FAMILIES.items():
        with table_row(group):
            assert family.names()[-1] == "tiny"
            assert type(create(group, "tiny")).__module__ in ("tinyplug", decoders.__name__)
            with pytest.raises(ConfigError, match=r"'tinier'.*tiny[?]$"):
                create(group, "tinier")
            # The doctor lists it.
            assert group.removeprefix("edgemeter.") in PLUGIN_FAMILIES


def test_a_broken_plug_in_is_one_line_that_names_its_package(site):
    """An absent class, a missing library and a syntax error are each one line in every family."""
    install(site, "otherplug", [(group, "absent", "tinyplug:Absent") for group in FAMILIES], MODULE)
    entries = [
        (group, name, value)
        for group in FAMILIES
        for name, value in (("needy", "nowhere.at_all:X"), ("broken", "spoilt:X"))
    ]
    install(site, "spoilt", entries, "this is no Python\n")
    for name, why in (
        ("absent", "AttributeError"),
        ("needy", "ModuleNotFoundError"),
        ("broken", "SyntaxError"),
    ):
        package = "otherplug" if name == "absent" else "spoilt"
        for group in FAMILIES:
            with (
                table_row(group, name),
                pytest.raises(
                    UnavailableError, match=rf"'{name}' \(.* of {package}\): {why}"
                ) as refusal,
            ):
                create(group, name)
            assert "\n" not in str(refusal.value)


def test_recognition_names_a_broken_plug_in_once(site, caplog):
    """A model that no other family recognises may belong to the broken one.

    One warning for all models names its package and the error.
    """
    install(site, "otherplug", [(decoders.ENTRY_POINTS, "lost", "nowhere.at_all:X")], MODULE)
    for _ in range(2):
        with pytest.raises(UnknownFamilyError):
            recognised_family(
                UnknownModel("model", (), tensors((1, 3, 5, 7, 9)), (640, 640), None, (), None)
            )
    (warning,) = caplog.messages
    assert "'lost' (nowhere.at_all:X of otherplug): ModuleNotFoundError" in warning


def test_a_name_that_two_packages_register_is_nobodys(site):
    """Which of the two plug-ins measures must not depend on the order of folders."""
    install(site, "otherplug", [(group, "tiny", "otherplug:Plain") for group in FAMILIES], MODULE)
    for group in FAMILIES:
        with (
            table_row(group),
            pytest.raises(ConfigError, match="'tiny' is registered by otherplug and tinyplug"),
        ):
            create(group, "tiny")


def test_a_name_of_ours_stays_ours(site):
    """No package can slip another sensor under a name that records know."""
    install(site, "impostor", [(power.ENTRY_POINTS, "rapl", "impostor:Plain")], MODULE)
    assert power.names().count("rapl") == 1
    assert power.sensor_class("rapl").__module__ == "edgemeter.agent.power.rapl"


@pytest.mark.usefixtures("site")
def test_a_reader_and_a_task_of_another_package_score_files_of_any_kind(tmp_path):
    """The ground truth has a form that only the plug-in's task knows, and the files are audio.

    The hash of the data covers files and truth.
    """
    (tmp_path / "clip.wav").write_bytes(b"RIFF")
    (tmp_path / "truth.counts").write_text("clip.wav 3\n")
    data = open_folder(tmp_path, tmp_path / "truth.counts")
    assert ([item.path.name for item in data.items], data.targets, data.has_truth) == (
        ["clip.wav"],
        {"clip.wav": 3},
        True,
    )
    task = tasks.create(make_card("any", "tiny"), make_loaded(), data)
    task.answer(0, [np.array([3.0], np.float32)])
    assert task.score().value == 1.0
    before = data.sha256
    (tmp_path / "truth.counts").write_text("clip.wav 4\n")
    assert open_folder(tmp_path, tmp_path / "truth.counts").sha256 != before


@pytest.mark.usefixtures("site")
def test_our_tasks_refuse_targets_that_they_do_not_know(tmp_path):
    """Otherwise the run would be published as one without ground truth."""
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "truth.counts").write_text("a.png 3\n")
    data = open_folder(tmp_path, tmp_path / "truth.counts")
    for task, family in (("classification", "classifier"), ("detection", "yolov8")):
        with pytest.raises(ConfigError, match="another task"):
            tasks.create(make_card(family, task, classes=3), make_loaded(tensors((1, 3))), data)

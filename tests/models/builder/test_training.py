"""The detector's training: assignment, loss, and the views it learns from."""

import importlib

import pytest

from edgemeter.agent.base.progress import no_progress
from edgemeter.models.builder.drawn_scenes import SIZE_PX
from edgemeter.models.builder.scene_shapes import CLASSES

pytestmark = [pytest.mark.torch, pytest.mark.nightly]


@pytest.fixture(scope="module")
def torch():
    """Return the library, imported only by tests that run."""
    return importlib.import_module("torch")


@pytest.fixture(scope="module")
def training():
    """Return what is tested, which imports PyTorch."""
    return importlib.import_module("edgemeter.models.builder.training")


def test_folding_changes_no_output(torch, training):
    """Normalisations become part of the convolutions; weights lie as the converters need them."""
    torch.manual_seed(0)
    model = training.Detector().to(memory_format=torch.channels_last).train()
    for _ in range(3):
        model(torch.rand(4, 3, SIZE_PX, SIZE_PX))
    model.eval()
    folded = training.fold(model)
    images = torch.rand(2, 3, SIZE_PX, SIZE_PX)
    for before, after in zip(model(images), folded(images), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in folded.modules())
    assert all(parameter.is_contiguous() for parameter in folded.parameters())


def test_a_cell_belongs_to_the_object_that_it_overlaps_and_else_to_none(torch, training):
    """Of two nested objects, a cell that draws the inner box predicts the inner one; cells outside both are background."""
    centres, _ = training.cells()
    outer, inner = (16.0, 16.0, 144.0, 144.0), (60.0, 60.0, 100.0, 100.0)
    predicted = torch.tensor(inner).expand(1, len(centres), 4)
    scores = torch.full((1, len(centres), len(CLASSES)), 0.1)
    target, weights = training.assign(predicted, scores, centres, torch.tensor([[outer, inner]]), torch.tensor([[0, 1]]), 1.0)
    within = (centres > 60).all(1) & (centres < 100).all(1) & (weights[0] > 0)
    assert within.any()
    assert (target[0, within] == 1).all()
    assert (weights[0, ~((centres > 16) & (centres < 144)).all(1)] == 0).all()


def test_turned_and_mirrored_views_keep_boxes_on_their_objects(torch, training):
    """A bright rectangle on black is where its box says, whatever the view."""
    images, boxes = torch.zeros(1, 3, SIZE_PX, SIZE_PX, dtype=torch.uint8), torch.tensor([[[20.0, 30.0, 50.0, 100.0]]])
    images[:, :, 30:100, 20:50] = 255
    pool = training.Pool(images, boxes, torch.tensor([[1]]))
    generator = torch.Generator().manual_seed(0)
    views = set()
    for _ in range(40):
        pictures, boxes_seen, _ = training._batch(pool, generator)
        x1, y1, x2, y2 = (int(edge) for edge in boxes_seen[0, 0])
        assert pictures[0, :, y1:y2, x1:x2].min() == 1
        assert pictures[0].sum() == 3 * 30 * 70
        views.add((x1, y1, x2, y2))
    assert len(views) == 8


def test_the_same_seed_trains_the_same_network(torch, training):
    """Two short trainings agree in every weight; another seed gives another network."""
    first, second, other = (training.train(seed, 4, no_progress, scenes=32).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)

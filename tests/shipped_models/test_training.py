"""The detector's training: assignment, loss, and the views it learns from."""

import importlib

import pytest

from edgemeter.agent.base.progress import no_progress
from tests.shipped_models.drawn_scenes import CLASSES, SIZE_PX

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def torch():
    """Return the library, imported only by tests that run."""
    return importlib.import_module("torch")


@pytest.fixture(scope="module")
def training():
    """Return what is tested, which imports PyTorch."""
    return importlib.import_module("tests.shipped_models.training")


def answering(torch, box, centres, strides):
    """Return the distances with which every cell answers `box`."""
    x1, y1, x2, y2 = box
    edges = torch.stack([centres[:, 0] - x1, centres[:, 1] - y1, x2 - centres[:, 0], y2 - centres[:, 1]], 1)
    return (edges / strides)[None]


@pytest.mark.services
def test_the_detector_predicts_once_per_cell(torch, training):
    """Distances are not negative, scores lie within 0..1, and the network is small."""
    boxes, scores = training.Detector().eval()(torch.rand(2, 3, SIZE_PX, SIZE_PX))
    count = sum((SIZE_PX // stride) ** 2 for stride in training.STRIDES)
    assert boxes.shape == (2, count, 4)
    assert scores.shape == (2, count, len(CLASSES))
    assert boxes.min() >= 0
    assert 0 <= scores.min() <= scores.max() <= 1
    assert training.parameters(training.Detector()) < 230_000


@pytest.mark.services
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


def test_cells_outside_every_object_are_background(torch, training):
    """Only cells within a true box answer for it, and the one with the best box answers fully."""
    centres, strides = training.cells()
    box = (32.0, 32.0, 80.0, 64.0)
    predicted = torch.tensor(box).expand(1, len(centres), 4)
    scores = torch.full((1, len(centres), len(CLASSES)), 0.1)
    truth, classes = torch.tensor([[box, (0.0, 0.0, 0.0, 0.0)]]), torch.tensor([[2, -1]])
    target, weights = training.assign(predicted, scores, centres, truth, classes, 0.0)
    inside = (centres > torch.tensor(box[:2])).all(1) & (centres < torch.tensor(box[2:])).all(1)
    assert (weights[0, ~inside] == 0).all()
    assert weights.max() == pytest.approx(1.0, abs=1e-4)
    assert (target[weights > 0] == 0).all()
    assert len(strides) == len(centres)


def test_a_cell_in_two_objects_predicts_the_one_it_overlaps(torch, training):
    """Of two nested objects, a cell that draws the inner box predicts the inner one."""
    centres, _ = training.cells()
    outer, inner = (16.0, 16.0, 144.0, 144.0), (60.0, 60.0, 100.0, 100.0)
    predicted = torch.tensor(inner).expand(1, len(centres), 4)
    scores = torch.full((1, len(centres), len(CLASSES)), 0.1)
    target, weights = training.assign(predicted, scores, centres, torch.tensor([[outer, inner]]), torch.tensor([[0, 1]]), 1.0)
    within = (centres > 60).all(1) & (centres < 100).all(1) & (weights[0] > 0)
    assert within.any()
    assert (target[0, within] == 1).all()


def test_the_loss_falls_towards_the_right_answer(torch, training):
    """Right box and class cost least, a wrong class more, a wrong box more."""
    centres, strides = training.cells()
    box = (32.0, 40.0, 96.0, 88.0)
    boxes, classes = torch.tensor([[box]]), torch.tensor([[3]])
    inside = (centres > torch.tensor(box[:2])).all(1) & (centres < torch.tensor(box[2:])).all(1)

    def logits(label):
        values = torch.full((1, len(centres), len(CLASSES)), -8.0)
        values[0, inside, label] = 4.0
        return values

    right = training.loss(answering(torch, box, centres, strides), logits(3), boxes, classes, 0.5)
    other_class = training.loss(answering(torch, box, centres, strides), logits(2), boxes, classes, 0.5)
    shifted = training.loss(answering(torch, (40.0, 40.0, 104.0, 88.0), centres, strides), logits(3), boxes, classes, 0.5)
    assert right < other_class
    assert right < shifted
    assert torch.isfinite(training.loss(answering(torch, box, centres, strides), logits(3), boxes * 0, classes * 0 - 1, 0.5))


@pytest.mark.services
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


@pytest.mark.nightly
def test_the_same_seed_trains_the_same_network(torch, training):
    """Two short trainings agree in every weight; another seed gives another network."""
    first, second, other = (training.train(seed, 4, no_progress, scenes=32).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.nightly
def test_learning_lowers_the_loss(monkeypatch, training):
    """On two scenes the loss of the last steps lies far below that of the first: 0.3 to 0.6 of it, as the processor rounds."""
    monkeypatch.setattr(training, "BATCH", 4)
    monkeypatch.setattr(training, "_WARM_UP_STEPS", 5)
    losses = []

    def tell(step, step_number, total):
        del step_number, total
        if step.startswith("training"):
            losses.append(float(step.rpartition(" ")[2]))

    training.train(5, 100, tell, scenes=2)
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])

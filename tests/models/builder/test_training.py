"""The detector's training: assignment, loss, and the views it learns from."""

import importlib

import pytest

from edgemeter.agent.base.progress import no_progress
from edgemeter.models.builder.drawn_scenes import SIZE_PX

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


def test_the_same_seed_trains_the_same_network(torch, training):
    """Two short trainings agree in every weight; another seed gives another network."""
    first, second, other = (training.train(seed, 4, no_progress, scenes=32).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)

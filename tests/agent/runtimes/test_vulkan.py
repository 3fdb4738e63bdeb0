"""Facts about the names of GPUs by Vulkan."""

import pytest

from edgemeter.agent.runtimes.vulkan import gpu_names
from tests.requirements import software_gpu


@pytest.mark.software_gpu
def test_a_processor_that_plays_a_gpu_is_marked(monkeypatch):
    """By the type that the driver states, whatever its name."""
    monkeypatch.setenv("VK_ICD_FILENAMES", str(software_gpu()))
    (name,) = gpu_names()
    assert name.endswith(" (software)")


def test_without_a_driver_there_is_no_gpu(monkeypatch):
    """Nor without Vulkan: no error, no name."""
    monkeypatch.setenv("VK_ICD_FILENAMES", "/nowhere.json")
    assert gpu_names() == []

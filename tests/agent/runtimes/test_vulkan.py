"""Facts about the names of GPUs by Vulkan."""

import pytest

from edgemeter.agent.runtimes import vulkan
from edgemeter.agent.runtimes.vulkan import gpu_facts, gpu_names
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
    assert (gpu_names(), gpu_facts()) == ([], {})


def test_of_several_gpus_none_is_named_as_the_one_that_computes(monkeypatch):
    """The library that computes does not name its choice; software beside hardware may be it."""
    for names, facts in (
        (["Mali"], {"gpu": "Mali"}),
        (["Mali", "llvmpipe (software)"], {"gpus_present": "Mali; llvmpipe (software)"}),
    ):
        monkeypatch.setattr(vulkan, "gpu_names", lambda names=names: names)
        assert gpu_facts() == facts

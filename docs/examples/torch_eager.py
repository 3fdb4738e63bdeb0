"""A PyTorch module, operator by operator: `edgemeter run torch_eager.py:make --option width=32`."""

import torch


def make(width: str = "16", threads: int = 1) -> tuple[object, dict]:
    """Return the call and its inputs; options arrive as text."""
    torch.set_num_threads(threads)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, int(width), 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)).eval()
    return torch.inference_mode()(lambda images: net(torch.from_numpy(images))), {"images": ("float32", (1, 3, 224, 224))}

"""Networks of the tests of factories, as a user's own file has them."""

import torch


class Net(torch.nn.Module):
    """A convolution with dropout, which shows whether the module is in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.drop = torch.nn.Dropout(0.9)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, x):
        """Return the scores of 5 classes."""
        return self.head(self.drop(self.conv(x).relu().mean((2, 3))))


class Broken(torch.nn.Module):
    """Leaves the graph in its middle."""

    def forward(self, x):
        """Return the doubled input, through a break."""
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1


class Asking(torch.nn.Module):
    """Has two inputs."""

    def forward(self, ids, mask):
        """Return the ids that the mask lets through."""
        return {"kept": ids * mask}


class Typed(torch.nn.Module):
    """Returns its input's size in bytes of one number."""

    def forward(self, x):
        """Return bytes per number, and what is left of the smallest step above 1."""
        return torch.tensor([x.element_size()]), (x + 1) * 1


def ready() -> torch.nn.Module:
    """Return a network from a function."""
    return Net()


def words() -> str:
    """Return no network."""
    return "no module"

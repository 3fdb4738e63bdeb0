"""The randomness of a corruption: of images, recordings and texts by one rule, the same with every numpy on every machine."""

import hashlib

import numpy as np

SEVERITIES = (1, 2, 3, 4, 5)


# Quoted: a session knows the severities, and draws nothing; numpy.random is a megabyte.
def corruption_draw(name: str, severity: int, seed: int, identity: str) -> "np.random.RandomState":
    """Return what draws the corruption of one item.

    RandomState's streams are frozen; the newer generators' may change with a version of numpy.

    Args:
        name: of the corruption.
        severity: 1 to 5.
        seed: of the run.
        identity: of the item (the hash of its file or text).
    """
    digest = hashlib.sha256(f"{seed}:{name}:{severity}:{identity}".encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, "<u4"))

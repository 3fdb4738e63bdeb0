"""A proxy before PostgreSQL that cuts a connection in the middle of COMMIT.

There a client cannot know what became of it.
"""

import asyncio
import random
from collections.abc import Iterator
from typing import Literal

from tools.chaos.proxy import CHUNK, Proxy

COMMIT = b"COMMIT"
# An answer that is on its way is lost with the connection; a server that waits for its standby has
# not answered yet.
LONGEST_WAIT_S = 0.05

# before: the server never sees the COMMIT. after: it does, and its answer never comes back.
Cut = Literal["before", "after"]


class CommitProxy(Proxy):
    """Passes on like `Proxy`, and cuts the next connections that commit, one for each `arm`."""

    def __init__(self, target: int, seed: int = 1) -> None:
        super().__init__(target)
        self.cuts = {"before": 0, "after": 0}
        self._armed: list[Cut] = []
        self._draw = random.Random(seed)  # noqa: S311 - the same waits for the same seed

    def arm(self, cut: Cut) -> None:
        self._armed.append(cut)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        if way == "back":
            await super()._pump(reader, writer, way)
            return
        while data := await reader.read(CHUNK):
            while self.mode == "stall":  # noqa: ASYNC110 - the mode is set from another thread
                await asyncio.sleep(0.05)
            for cut in self._due(data):
                if cut == "after":
                    writer.write(data)
                    await writer.drain()
                    await asyncio.sleep(self._draw.uniform(0, LONGEST_WAIT_S))
                # Both ends are cut by the caller.
                return
            writer.write(data)
            await writer.drain()

    def _due(self, data: bytes) -> Iterator[Cut]:
        if self._armed and COMMIT in data:
            cut = self._armed.pop(0)
            self.cuts[cut] += 1
            yield cut

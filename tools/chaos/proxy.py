"""A TCP proxy that cuts, stalls and lies: what stands between the processes of a chaos run."""

import asyncio
import threading
from typing import Literal

from tests.fixtures.servers import LOOPBACK, free_port

# lost-answer: the request arrives and is obeyed, its answer never comes back. slow: every answer
# takes a second longer.
Mode = Literal["pass", "stall", "refuse", "lost-answer", "slow", "500", "429", "503"]
CHUNK = 1 << 16
SLOW_S = 1.0


class Proxy:
    """Listens on `port` and passes on to `target`, as `mode` says; `start` once, `stop` once."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self.mode: Mode = "pass"
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, LOOPBACK, self.port), self._loop
        ).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        def abort() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(abort)

    def set(self, mode: Mode) -> None:
        self.mode = mode
        if mode != "stall":
            self.cut()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A transport that was aborted closes its socket in the next turn.
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self.mode.isdigit():
                await self._answer(reader, writer, int(self.mode))
            elif self.mode != "refuse":
                await self._pass_on(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self.target)
        self._writers.add(far_writer)
        pumps = [
            asyncio.ensure_future(self._pump(reader, far_writer, "there")),
            asyncio.ensure_future(self._pump(far_reader, writer, "back")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._writers.discard(far_writer)
            far_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        while data := await reader.read(CHUNK):
            while self.mode == "stall":  # noqa: ASYNC110 - the mode is set from another thread
                await asyncio.sleep(0.05)
            if way == "back" and self.mode == "lost-answer":
                return
            if way == "back" and self.mode == "slow":
                await asyncio.sleep(SLOW_S)
            writer.write(data)
            await writer.drain()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int
    ) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line[15:])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            await reader.readexactly(length)
            body = b'{"code":"unavailable","message":"chaos"}'
            extra = "Retry-After: 1\r\n" if status == 429 else ""
            lines = (
                f"HTTP/1.1 {status} Chaos\r\nContent-Type: application/json\r\nContent-Length: "
                f"{len(body)}\r\n{extra}\r\n"
            )
            writer.write(lines.encode() + body)
            await writer.drain()

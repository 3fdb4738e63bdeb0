"""A TCP proxy in a process of its own that writes the moment of everything it passes on: the log of any server, which need not keep one.

`python tests/benchmarks/stamping_proxy.py HOST PORT` prints its own port, then a JSON line for each piece that it passes on:
`[connection, "up" or "down", monotonic ns, the bytes in base64]`.
"""

import asyncio
import base64
import itertools
import json
import sys
import time

_NUMBERS = itertools.count()


async def _pass_on(number: int, way: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while content := await source.read(1 << 16):
        moment_ns = time.monotonic_ns()
        sink.write(content)
        await sink.drain()
        print(json.dumps([number, way, moment_ns, base64.b64encode(content).decode()]), flush=True)
    sink.close()


async def _main(host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(_NUMBERS)
        server_reader, server_writer = await asyncio.open_connection(host, port)
        try:
            await asyncio.gather(_pass_on(number, "up", reader, server_writer), _pass_on(number, "down", server_reader, writer))
        except ConnectionError:
            writer.close()
            server_writer.close()

    proxy = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(proxy.sockets[0].getsockname()[1], flush=True)
    await proxy.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))

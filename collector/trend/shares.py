"""Work in several processes: each is a fork of this one, which has read what all need."""

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec

Value = TypeVar("Value")


class _Fork(NamedTuple):
    process: int
    output: BinaryIO


def in_processes(work: Callable[[int], Value], shares: int, kind: type[Value]) -> Iterator[Value]:
    """Yield the result of `work`, of this `kind`, on each of the shares 0, 1, 2, ...

    The result on 0 is computed here, each other in a fork.

    If a fork fails (an error, or too little memory), its share is computed here, which raises the
    error.
    """
    forks = [_fork(work, share) for share in range(1, shares)]
    yield work(0)
    for share, fork in enumerate(forks, 1):
        with fork.output:
            encoded = fork.output.read()
        os.waitpid(fork.process, 0)
        yield msgspec.msgpack.decode(encoded, type=kind) if encoded else work(share)


def _fork(work: Callable[[int], object], share: int) -> _Fork:
    reading, writing = os.pipe()
    if process := os.fork():
        os.close(writing)
        return _Fork(process, os.fdopen(reading, "rb"))
    try:
        # If this process ends early, nobody reads.
        os.close(reading)
        encoded = msgspec.msgpack.encode(work(share))
        with os.fdopen(writing, "wb") as output:
            output.write(encoded)
    finally:
        os._exit(0)

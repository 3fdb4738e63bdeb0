"""Converters talk at length, some from C++: it goes to a file, and to the reader only when the conversion fails."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from edgemeter.agent.errors import EdgemeterError


@contextmanager
def quiet() -> Iterator[None]:
    """Swallow what this process writes to standard output and error, at the level of file descriptors.

    It is printed when an error leaves, but for one of ours, which says on one line what is wrong.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    with tempfile.TemporaryFile() as talk:
        try:
            for descriptor in (1, 2):
                os.dup2(talk.fileno(), descriptor)
            yield
        except EdgemeterError:
            raise
        except BaseException:
            talk.seek(0)
            os.write(kept[1], talk.read())
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, original in zip((1, 2), kept, strict=True):
                os.dup2(original, descriptor)
                os.close(original)

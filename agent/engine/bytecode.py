"""Imports the modules of a run, so that Python writes their bytecode.

Call it as `python -m edgemeter.agent.engine.bytecode RUNTIME`. A sandboxed run cannot write it.
Without this, packages of an installer that compiles nothing (uv) would be compiled in every cold
start.
"""

import sys
from contextlib import suppress
from importlib import import_module
from itertools import chain

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.engine.inspection import libraries_of


def main() -> None:
    """Import the measuring process, the adapter, and the libraries that the adapter names."""
    (name,) = sys.argv[1:]
    # The process imports one of the last two only once it has its job.
    for module in ("worker", "measure", "model_subject", "language_subject"):
        import_module(f"edgemeter.agent.engine.{module}")
    with suppress(EdgemeterError):
        for candidate in chain(*libraries_of(name)):
            with suppress(ImportError, OSError):
                import_module(candidate.module)


if __name__ == "__main__":
    main()

"""`python -m edgemeter.agent.engine.bytecode RUNTIME`: imports what a run imports, so that Python writes its bytecode; opens no model.

A sandboxed run writes nothing beside the modules: without this, a package whose installer compiles nothing (uv) would be compiled in
every cold start.
"""

import sys
from contextlib import suppress
from importlib import import_module

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.plugins import find_plugin
from edgemeter.agent.generators import ENTRY_POINTS as GENERATOR_ENTRY_POINTS
from edgemeter.agent.generators import GENERATORS
from edgemeter.agent.runtimes import ENTRY_POINTS, RUNTIMES
from edgemeter.agent.runtimes.adapter import LibraryCandidate


def main() -> None:
    """Import the measuring process, the adapter, and the libraries that the adapter names."""
    (name,) = sys.argv[1:]
    import_module("edgemeter.agent.engine.worker")
    of_generator = name in GENERATORS
    with suppress(EdgemeterError):
        table, group = (GENERATORS, GENERATOR_ENTRY_POINTS) if of_generator else (RUNTIMES, ENTRY_POINTS)
        adapter = sys.modules[find_plugin("runtime", table, name, group).__module__]
        for value in vars(adapter).values():
            for candidate in value if isinstance(value, tuple) else ():
                if isinstance(candidate, LibraryCandidate):
                    with suppress(ImportError, OSError):
                        import_module(candidate.module)


if __name__ == "__main__":
    main()

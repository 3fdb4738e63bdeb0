"""Counts the Python modules that are compiled while they are imported, because no valid bytecode is installed for them."""

from importlib.machinery import SourceFileLoader
from typing import Any

_COMPILE = "source_to_code"


class CompileCount:
    """Counts from its creation until `stop`; a module with valid bytecode costs nothing and is not counted."""

    def __init__(self) -> None:
        self._modules = 0
        compile_source: Any = SourceFileLoader.source_to_code

        def counted(loader: SourceFileLoader, *source: Any, **options: Any) -> Any:
            self._modules += 1
            return compile_source(loader, *source, **options)

        # The loader calls it only where it found no bytecode that it may use.
        setattr(SourceFileLoader, _COMPILE, counted)

    def stop(self) -> int:
        """Return how many modules were compiled, and leave the import system as it was; to be called once."""
        # The method itself is that of a base class.
        delattr(SourceFileLoader, _COMPILE)
        return self._modules

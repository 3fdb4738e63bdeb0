"""The build step that writes the JSON Schemas into the wheel, made from its code."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# By the file in the package `edgemeter`: what prints it.
REFERENCE_FILES = {
    "reference/record.schema.json": ("edgemeter.agent.cli", "config", "schema", "record"),
    "reference/messages.schema.json": ("edgemeter.agent.cli", "config", "schema", "messages"),
}


class BuildWithReference(build_py):
    """Copy the packages, then run them to print the files."""

    def run(self) -> None:
        """Build the packages; an installation in place has no further files."""
        super().run()
        if self.editable_mode:
            return
        for name, command in REFERENCE_FILES.items():
            self._print(Path(self.build_lib, "edgemeter", name), *command)

    def _print(self, target: Path, *command: str) -> None:
        search_path = os.pathsep.join(
            [str(Path(self.build_lib).absolute()), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            environment = {**os.environ, "PYTHONPATH": search_path, "PYTHONDONTWRITEBYTECODE": "1"}
            subprocess.run(
                [sys.executable, "-m", *command], env=environment, stdout=file, check=True
            )


setup(cmdclass={"build_py": BuildWithReference})

import sys

import click
from click.testing import CliRunner

from edgemeter.agent.base.cli.command_group import CommandGroup

SECTIONS = {
    "First": {"one": ("lazily_imported:one", "The first.")},
    "Then": {
        "gone": ("not_installed_anywhere:gone", "Of a module that is absent."),
        "alpha": ("lazily_imported:one", "The last."),
    },
}


@click.group(cls=CommandGroup, sections=SECTIONS)
def tool():
    """Do nothing."""


def test_help_lists_the_sections_in_their_order_and_imports_no_command(tmp_path, monkeypatch):
    """Help lists every command even where the module of one cannot be imported."""
    (tmp_path / "lazily_imported.py").write_text(
        "import click\n\n@click.command()\ndef one():\n    click.echo('did it')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lazily_imported", raising=False)
    output = CliRunner().invoke(tool, ["--help"]).output
    assert output.index("First:") < output.index("Then:") < output.index("alpha")
    assert "lazily_imported" not in sys.modules
    assert CliRunner().invoke(tool, ["alpha"]).output == "did it\n"
    del sys.modules["lazily_imported"]

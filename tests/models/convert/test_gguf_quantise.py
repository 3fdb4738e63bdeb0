"""GGUF files are quantised: the same bytes as the shipped ones, the same contents beside the weights."""

import json
import shutil

import gguf
import numpy as np
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.main import cli
from edgemeter.models.catalogue.shipped_models import LANGUAGE_FOLDER
from edgemeter.models.convert import gguf_quantise

SOURCE = LANGUAGE_FOLDER / "edgemeter-notes_f16.gguf"


def test_each_type_is_written_with_all_that_is_no_weight(tmp_path):
    """Tokenizer and lengths are copied, matrices have the type, vectors stay."""
    before = gguf.GGUFReader(SOURCE)
    for kind in gguf_quantise.TYPES:
        path = gguf_quantise.quantise(SOURCE, kind, tmp_path)
        written = gguf.GGUFReader(path)
        assert path.name == f"edgemeter-notes_{kind}.gguf"
        assert written.fields["general.file_type"].contents() == gguf.LlamaFileType[f"MOSTLY_{kind.upper()}"]
        for name in ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "llama.context_length"):
            assert written.fields[name].contents() == before.fields[name].contents()
        shapes = [[(tensor.name, tensor.n_elements) for tensor in reader.tensors] for reader in (written, before)]
        assert shapes[0] == shapes[1]
        assert {tensor.tensor_type.name for tensor in written.tensors if "norm" in tensor.name} == {"F32"}
        assert {tensor.tensor_type.name for tensor in written.tensors if "norm" not in tensor.name} == {kind.upper()}
    assert not list(tmp_path.glob("*.part"))


def test_the_weights_are_those_of_the_shipped_file(tmp_path):
    """That one was quantised from the same weights by the recipe of the shipped models."""
    quantised, shipped = (
        {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
        for path in (gguf_quantise.quantise(SOURCE, "q4_0", tmp_path), LANGUAGE_FOLDER / "edgemeter-notes_q4_0.gguf")
    )
    assert quantised.keys() == shipped.keys()
    assert all(np.array_equal(quantised[name], shipped[name]) for name in quantised)


def test_what_cannot_be_quantised_is_one_line(tmp_path):
    """A quantised file, its own source, a file cut short, and one that is no GGUF."""
    with pytest.raises(ConfigError, match=r"is quantised already \(Q8_0\)"):
        gguf_quantise.quantise(LANGUAGE_FOLDER / "edgemeter-notes_q8_0.gguf", "q4_0", tmp_path)
    link = tmp_path / "model_f16.gguf"
    link.symlink_to(shutil.copy(SOURCE, tmp_path / "model_q4_0.gguf"))
    with pytest.raises(ConfigError, match="would replace its own source"):
        gguf_quantise.quantise(link, "q4_0", tmp_path)
    for name, content in (("cut", SOURCE.read_bytes()[:90_000]), ("foreign", b"no model at all" * 100)):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be read as GGUF") as raised:
            gguf_quantise.quantise(path, "q4_0", tmp_path)
        assert "\n" not in str(raised.value)


def test_the_command_writes_each_type(tmp_path):
    """A type that does not exist is named with those that do."""
    command = ["models", "quantise", str(SOURCE), "--output", str(tmp_path)]
    result = CliRunner().invoke(cli, [*command, "--to", "q8_0", "--to", "q4_0", "--format", "json"])
    assert result.exit_code == 0, result.output
    sizes = [row["size_bytes"] for row in json.loads(result.stdout)["files"]]
    assert sizes[1] < sizes[0] < SOURCE.stat().st_size
    assert "choose of q8_0, q5_1" in CliRunner().invoke(cli, [*command, "--to", "q2_k"]).output

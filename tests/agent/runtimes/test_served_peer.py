"""A real MLServer over HTTP."""

from contextlib import closing

import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.runtimes import Options, create
from tools.peers.real_mlserver import real_mlserver

X = np.array([[0, 1, 2, 3]], np.float32)
pytestmark = [pytest.mark.mlserver, pytest.mark.nightly]


@pytest.fixture(scope="module")
def mlserver(tmp_path_factory):
    with real_mlserver(tmp_path_factory.mktemp("mlserver")) as server:
        yield server


def server_file(folder, url, keys=""):
    path = folder / "double.server"
    path.write_text(f'url = "{url}"\nprotocol = "oip"\n{keys}\n')
    return path


def test_mlserver_answers_what_its_model_computes(mlserver, tmp_path):
    """Batches follow its metadata, and the version is that of its answers."""
    with closing(create("served")) as runtime:
        loaded = runtime.load(server_file(tmp_path, mlserver, 'model = "double"'), Options())
        assert (loaded.package, loaded.version, loaded.backend) == ("mlserver", "1.7.1", "oip,json")
        assert loaded.inputs[0].shape == (None, 4)
        for batch in (1, 3):
            inputs = np.repeat(X, batch, axis=0)
            runtime.bind([inputs])()
            np.testing.assert_array_equal(runtime.outputs()[0], inputs * 2 + 1)
        assert runtime.with_late_facts(loaded).facts["served_model_version"] == "v1"


def test_binary_tensors_that_mlserver_refuses_are_one_line(mlserver, tmp_path):
    """The status is 422 or 500, depending on how its JSON reader takes the bytes."""
    with closing(create("served")) as runtime:
        runtime.load(server_file(tmp_path, mlserver, 'transport = "binary"'), Options())
        with pytest.raises(
            AnswerError,
            match=(
                r"answers (422|500).*"
                r"(check transport of the server's file|read the server's log)"
            ),
        ) as failure:
            runtime.bind([X + np.float32(0.3)])()
        assert failure.value.kind in ("http 422", "http 500")

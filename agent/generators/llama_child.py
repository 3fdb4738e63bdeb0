"""The program that serves a GGUF file by the package xllamacpp.

`local_server` starts it by its path, so that it imports nothing of ours.

Its argument is a JSON object with attributes of `xllamacpp.CommonParams`; names of nested ones have
dots.
"""

import json
import os
import sys
from functools import reduce


def main() -> None:
    """Serve until the process is ended."""
    import xllamacpp  # noqa: PLC0415 - the tests import this file where it is not installed

    if json.loads(sys.argv[1])["n_gpu_layers"] and len(xllamacpp.get_device_info()) < 2:
        sys.exit("no usable GPU found")
    parameters = xllamacpp.CommonParams()
    for name, value in json.loads(sys.argv[1]).items():
        *parts, attribute = name.split(".")
        setattr(reduce(getattr, parts, parameters), attribute, value)
    parameters.api_keys = [os.environ["LLAMA_API_KEY"]]
    server = xllamacpp.Server(parameters)
    sys.stdout.write(
        f"system_info: {xllamacpp.get_system_info()}\nlistening on {server.listening_address}\n"
    )
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()

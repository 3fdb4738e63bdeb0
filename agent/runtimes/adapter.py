"""Shared code of the runtimes' adapters.

It imports their libraries, checks options and inputs, has the rule for files with code, and reads
metadata: texts in a zip, or the `metadata.yaml` (task, size, class names) that Ultralytics writes
next to OpenVINO and ncnn models.
"""

import os
import re
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line
from edgemeter.agent.base.plugins import install_command
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, TensorInfo
from edgemeter.agent.sandbox.bubblewrap import is_inside

# The loader's message about a missing system library of a wheel, and Debian's packages of the usual
# ones.
_MISSING_LIBRARY = re.compile(r"(lib\S+\.so[.\d]*): cannot open shared object file")
_PACKAGES = {
    "libgomp.so.1": "libgomp1",
    "libusb-1.0.so.0": "libusb-1.0-0",
    "libGL.so.1": "libgl1",
    "libopenblas.so.0": "libopenblas0",
}
_FLOATS = ("fp64", "fp32", "fp16", "bf16")
METADATA_FILE = "metadata.yaml"
# Labels and settings are shorter; a zip can claim any size.
_MOST_BYTES, _MOST_TEXTS = 1 << 20, 32


@dataclass(frozen=True, slots=True)
class LibraryCandidate:
    """A suitable library: its module, the distributions that may have it, and a note.

    The module is the one to import, the distributions come likeliest first, and the note is for the
    installation.
    """

    module: str
    distributions: tuple[str, ...]
    note: str = ""


_YAML = (LibraryCandidate("yaml", ("PyYAML",)),)


@dataclass(frozen=True, slots=True)
class RuntimeLibrary:
    """An imported library; `package` is its distribution.

    `import_ns` is near 0 if the library was imported before.
    """

    module: Any
    package: str
    version: str
    import_ns: int

    def loaded(self, **fields: Any) -> Loaded:
        """Return a `Loaded` with these fields and the library's own.

        If an accelerator chooses the precision of floats (`gpu,auto`), that of the file is not that
        of the run.
        """
        if str(fields["backend"]).endswith(",auto") and fields.get("precision") in _FLOATS:
            fields["precision"] = "unknown"
        return Loaded(
            package=self.package, version=self.version, import_ns=self.import_ns, **fields
        )


def why_absent(candidates: Sequence[LibraryCandidate], extra: str) -> str | None:
    """Return why none of these libraries is installed, without importing one.

    It is None if one is installed, even if that one is broken.
    """
    if any(find_spec(candidate.module.partition(".")[0]) for candidate in candidates):
        return None
    modules = " or ".join(candidate.module for candidate in candidates)
    return (
        f"no usable {modules} is installed; to install it: "
        f"{install_command(extra)}{candidates[0].note}"
    )


def load_library(candidates: Sequence[LibraryCandidate], extra: str) -> RuntimeLibrary:
    """Return the first of `candidates` that can be imported; `extra` installs it.

    Raises:
        UnavailableError: none is installed, or the installed one cannot be imported.
    """
    # Before the clock: some libraries import it too. A session, which reads this file, does not
    # need it.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - as above

    broken = ""
    for candidate in candidates:
        started_ns = time.monotonic_ns()
        try:
            module = import_module(candidate.module)
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            # If the error does not name the module or its package, something that it needs is
            # missing.
            if not isinstance(error, ModuleNotFoundError) or not f"{candidate.module}.".startswith(
                f"{error.name}."
            ):
                broken = f": {candidate.module} is here but cannot be imported: {one_line(error)}"
            continue
        import_ns = time.monotonic_ns() - started_ns
        installed = {}
        for name in candidate.distributions:
            with suppress(PackageNotFoundError):
                installed[name] = version(name)
        return RuntimeLibrary(module, *_distribution(candidate, module, installed), import_ns)
    if not broken and (why := why_absent(candidates, extra)):
        raise UnavailableError(why)
    modules = " or ".join(candidate.module for candidate in candidates)
    missing = _MISSING_LIBRARY.search(broken)
    package = _PACKAGES.get(missing[1], f"the package that holds {missing[1]}") if missing else None
    remedy = (
        f"on Debian: sudo apt install {package}"
        if package
        else f"to install it: {install_command(extra)}"
    )
    raise UnavailableError(
        f"no usable {modules}{broken or ' is installed'}; {remedy}{candidates[0].note}"
    )


def _distribution(
    candidate: LibraryCandidate, module: Any, installed: Mapping[str, str]
) -> tuple[str, str]:
    """Return name and version of the distribution.

    A vendor's build may have another name; then the module's version counts. If several of those
    `installed` have the module, the last one overwrote the others: it is the one with the module's
    version.
    """
    top = import_module(candidate.module.partition(".")[0])
    module_version = str(
        getattr(module, "__version__", None) or getattr(top, "__version__", "unknown")
    )
    pairs = installed.items()
    return next(
        (pair for pair in pairs if pair[1] == module_version),
        next(iter(pairs), (candidate.distributions[0], module_version)),
    )


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Catch standard error, on which some C++ libraries print reasons.

    The lines are complete after the block.
    """
    lines: list[str] = []
    stderr = os.dup(2)
    # In memory: a sandbox may have no folder to write.
    with os.fdopen(os.memfd_create("stderr"), "w+b") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            lines += [
                line for line in file.read().decode(errors="replace").splitlines() if line.strip()
            ]


def check_options(
    runtime: str,
    options: Options,
    backends: Collection[str] | None = None,
    extra: Collection[str] = (),
) -> None:
    """Check options; `extra` are the known settings.

    With `backends` None the runtime checks the backend itself.

    Raises:
        ConfigError: fewer than one thread, an unknown backend or an unknown setting.
    """
    if options.threads < 1:
        raise ConfigError(
            f"runtime {runtime!r} cannot run on {options.threads} threads: give 1 or more"
        )
    if backends is not None and options.backend is not None and options.backend not in backends:
        choices = (
            f"choose {', '.join(map(repr, backends))}, or leave it out"
            if backends
            else "leave it out"
        )
        raise ConfigError(f"runtime {runtime!r} has no backend {options.backend!r}: {choices}")
    unknown = sorted(set(options.extra) - set(extra))
    if unknown:
        settings = f"it knows {', '.join(extra)}" if extra else "it knows none"
        raise ConfigError(f"runtime {runtime!r} has no setting {unknown[0]!r}: {settings}")


def chosen_setting(
    runtime: str, options: Options, name: str, choices: Collection[str]
) -> str | None:
    """Return the setting `name` of the options, None if it is absent.

    Raises:
        ConfigError: the setting is none of `choices`.
    """
    value = options.extra.get(name)
    if value is not None and value not in choices:
        raise ConfigError(f"runtime {runtime!r} has no {name} {value!r}: {near(value, choices)}")
    return value


def check_inputs(inputs: Sequence[Array], declared: Sequence[TensorInfo]) -> None:
    """Check that `inputs` fit the model.

    Raises:
        ConfigError: their number, or the dtype or shape of one, is not the declared one.
    """
    if len(inputs) != len(declared):
        names = ", ".join(repr(info.name) for info in declared)
        raise ConfigError(
            f"the model takes {len(declared)} inputs ({names}), got {len(inputs)}: give one "
            "array for each"
        )
    for array, info in zip(inputs, declared, strict=True):
        # The name of a dtype is slow, and needed for swapped bytes only.
        is_of_dtype = array.dtype == info.dtype or array.dtype.name == info.dtype  # noqa: PLR1714
        if not is_of_dtype or not shape_fits(array.shape, info.shape):
            raise ConfigError(
                f"input {info.name!r} takes {describe_tensor(info.dtype, info.shape)}, "
                f"got {describe_tensor(array.dtype.name, array.shape)}: prepare the data as the "
                "model declares"
            )


def shape_fits(shape: Sequence[int | None], declared: Sequence[int | None]) -> bool:
    """Return whether `shape` has the declared rank and sizes, apart from open dimensions."""
    return len(shape) == len(declared) and all(
        None in (have, want) or have == want for have, want in zip(shape, declared, strict=True)
    )


def describe_tensor(dtype: str, shape: Sequence[int | None]) -> str:
    """Return a tensor in words: `float32 [1, 3, ?, ?]`."""
    return f"{dtype} [{', '.join('?' if size is None else str(size) for size in shape)}]"


def open_code(model: Path, options: Options) -> None:
    """Check that a file with code may be opened: in the sandbox, or if its sha256 is given.

    Raises:
        ConfigError: this process is not confined, and no hash, or another one, is given.
    """
    if options.sha256 is None and is_inside():
        return
    actual = model_file.sha256(model)
    if options.sha256 is None:
        raise ConfigError(
            f"{str(model)!r} contains code, and no sandbox confines it here: if you "
            "trust its source, "
            f"pass its hash with --sha256 {actual}, or as sha256 in {model.name}.toml"
        )
    model_file.check_sha256(str(model), actual, options.sha256)


def zipped_texts(archive: Path, below: str = "") -> dict[str, str]:
    """Return the UTF-8 members of a zip, or of a zip at the end of another file, by name.

    With `below`, only those in that folder are returned. They are labels and settings, so members
    that are no text, or too large, are left out.
    """
    texts: dict[str, str] = {}
    with suppress(*model_file.BROKEN_ZIP), zipfile.ZipFile(archive) as members:
        for info in members.infolist():
            _, is_below, name = (
                f"/{info.filename}".partition(f"/{below}/") if below else ("", "/", info.filename)
            )
            if (
                is_below
                and name
                and not name.endswith("/")
                and info.file_size <= _MOST_BYTES
                and len(texts) < _MOST_TEXTS
            ):
                with suppress(*model_file.BROKEN_ZIP), members.open(info) as member:
                    texts[name] = member.read(_MOST_BYTES).decode("utf-8")
    return texts


def read_metadata(folder: Path, extra: str) -> Mapping[str, str]:
    """Return the contents of the file in `folder` by key; empty without a file.

    Lists and blocks are texts of Python literals.

    Raises:
        UnavailableError: there is a file, but PyYAML, which `extra` installs, is missing.
    """
    path = folder / METADATA_FILE
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return {}
    yaml = load_library(_YAML, extra).module
    try:
        entries = yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, OSError, ValueError):
        return {}
    return (
        {name: _literal(value) for name, value in entries.items() if value}
        if isinstance(entries, dict)
        else {}
    )


def _literal(value: Any) -> str:
    """Return a list or block as a text, with numbers as numbers, as in other formats."""
    if isinstance(value, list):
        return repr([_number(item) for item in value])
    return (
        repr({_number(name): item for name, item in value.items()})
        if isinstance(value, dict)
        else str(value)
    )


def _number(text: Any) -> Any:
    return int(text) if isinstance(text, str) and re.fullmatch(r"-?\d{1,9}", text) else text

"""The names that plug-ins import: protocols, the types of their arguments, and helpers.

They follow semantic versioning like those of `edgemeter`. A module is imported when one of its
names is used, so that a sensor's plug-in does not import what decodes images.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgemeter.agent.base.errors import (
        ConfigError,
        EdgemeterError,
        MeasurementError,
        TransientError,
        UnavailableError,
        one_line,
    )
    from edgemeter.agent.contract.model_card import Card, CardOutput, ImageInput
    from edgemeter.agent.contract.model_file import head as model_head
    from edgemeter.agent.contract.record_accuracy import Accuracy
    from edgemeter.agent.datasets import GroundTruth, Reader, Targets
    from edgemeter.agent.datasets.dataset import Dataset, open_folder
    from edgemeter.agent.datasets.items import Item
    from edgemeter.agent.generators import (
        ConcurrentGenerator,
        Generated,
        Generator,
        GeneratorAbilities,
        Limits,
        LoadedGenerator,
        Stamp,
    )
    from edgemeter.agent.generators import create as create_generator
    from edgemeter.agent.power import AbsentError, Description, PowerSensor, Rail, Reading
    from edgemeter.agent.power.sysfs import read_number
    from edgemeter.agent.power.values import as_unavailable, scope_setting
    from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo, dequantise
    from edgemeter.agent.runtimes import create as create_runtime
    from edgemeter.agent.runtimes.adapter import (
        LibraryCandidate,
        check_inputs,
        check_options,
        load_library,
    )
    from edgemeter.agent.runtimes.python_model import PythonModel
    from edgemeter.agent.tasks import Inputs, Outputs, Parts, Task
    from edgemeter.agent.tasks.array_items import array_inputs, fitted
    from edgemeter.agent.tasks.parts import Jackknifed, Share, item_accuracy
    from edgemeter.agent.vision.decoders import Decoder, Detections, Floats, Mask, PhotoFrame
    from edgemeter.agent.vision.decoders.boxes import select as select_boxes
    from edgemeter.agent.vision.decoders.family import Family, Pictures, Recognition, UnknownModel
    from edgemeter.agent.vision.preprocess import Preprocessor, input_of, values_of_first

__all__ = (
    "AbsentError",
    "Accuracy",
    "Array",
    "Card",
    "CardOutput",
    "ConcurrentGenerator",
    "ConfigError",
    "Dataset",
    "Decoder",
    "Description",
    "Detections",
    "EdgemeterError",
    "Family",
    "Floats",
    "Generated",
    "Generator",
    "GeneratorAbilities",
    "GroundTruth",
    "ImageInput",
    "Inputs",
    "Item",
    "Jackknifed",
    "LibraryCandidate",
    "Limits",
    "Loaded",
    "LoadedGenerator",
    "Mask",
    "MeasurementError",
    "Options",
    "Outputs",
    "Parts",
    "PhotoFrame",
    "Pictures",
    "PowerSensor",
    "Preprocessor",
    "PythonModel",
    "Rail",
    "Reader",
    "Reading",
    "Recognition",
    "Runtime",
    "Share",
    "Stamp",
    "Targets",
    "Task",
    "TensorInfo",
    "TransientError",
    "UnavailableError",
    "UnknownModel",
    "array_inputs",
    "as_unavailable",
    "check_inputs",
    "check_options",
    "create_generator",
    "create_runtime",
    "dequantise",
    "fitted",
    "input_of",
    "item_accuracy",
    "load_library",
    "model_head",
    "one_line",
    "open_folder",
    "read_number",
    "scope_setting",
    "select_boxes",
    "values_of_first",
)

_PLACES = {
    "ConfigError": "edgemeter.agent.base.errors:ConfigError",
    "EdgemeterError": "edgemeter.agent.base.errors:EdgemeterError",
    "MeasurementError": "edgemeter.agent.base.errors:MeasurementError",
    "TransientError": "edgemeter.agent.base.errors:TransientError",
    "UnavailableError": "edgemeter.agent.base.errors:UnavailableError",
    "one_line": "edgemeter.agent.base.errors:one_line",
    "Card": "edgemeter.agent.contract.model_card:Card",
    "CardOutput": "edgemeter.agent.contract.model_card:CardOutput",
    "ImageInput": "edgemeter.agent.contract.model_card:ImageInput",
    "model_head": "edgemeter.agent.contract.model_file:head",
    "Accuracy": "edgemeter.agent.contract.record_accuracy:Accuracy",
    "GroundTruth": "edgemeter.agent.datasets:GroundTruth",
    "Reader": "edgemeter.agent.datasets:Reader",
    "Targets": "edgemeter.agent.datasets:Targets",
    "Dataset": "edgemeter.agent.datasets.dataset:Dataset",
    "open_folder": "edgemeter.agent.datasets.dataset:open_folder",
    "Item": "edgemeter.agent.datasets.items:Item",
    "ConcurrentGenerator": "edgemeter.agent.generators:ConcurrentGenerator",
    "Generated": "edgemeter.agent.generators:Generated",
    "Generator": "edgemeter.agent.generators:Generator",
    "GeneratorAbilities": "edgemeter.agent.generators:GeneratorAbilities",
    "Limits": "edgemeter.agent.generators:Limits",
    "LoadedGenerator": "edgemeter.agent.generators:LoadedGenerator",
    "Stamp": "edgemeter.agent.generators:Stamp",
    "create_generator": "edgemeter.agent.generators:create",
    "AbsentError": "edgemeter.agent.power:AbsentError",
    "Description": "edgemeter.agent.power:Description",
    "PowerSensor": "edgemeter.agent.power:PowerSensor",
    "Rail": "edgemeter.agent.power:Rail",
    "Reading": "edgemeter.agent.power:Reading",
    "read_number": "edgemeter.agent.power.sysfs:read_number",
    "as_unavailable": "edgemeter.agent.power.values:as_unavailable",
    "scope_setting": "edgemeter.agent.power.values:scope_setting",
    "Array": "edgemeter.agent.runtimes:Array",
    "Loaded": "edgemeter.agent.runtimes:Loaded",
    "Options": "edgemeter.agent.runtimes:Options",
    "Runtime": "edgemeter.agent.runtimes:Runtime",
    "TensorInfo": "edgemeter.agent.runtimes:TensorInfo",
    "create_runtime": "edgemeter.agent.runtimes:create",
    "dequantise": "edgemeter.agent.runtimes:dequantise",
    "LibraryCandidate": "edgemeter.agent.runtimes.adapter:LibraryCandidate",
    "check_inputs": "edgemeter.agent.runtimes.adapter:check_inputs",
    "check_options": "edgemeter.agent.runtimes.adapter:check_options",
    "load_library": "edgemeter.agent.runtimes.adapter:load_library",
    "PythonModel": "edgemeter.agent.runtimes.python_model:PythonModel",
    "Inputs": "edgemeter.agent.tasks:Inputs",
    "Outputs": "edgemeter.agent.tasks:Outputs",
    "Parts": "edgemeter.agent.tasks:Parts",
    "Task": "edgemeter.agent.tasks:Task",
    "array_inputs": "edgemeter.agent.tasks.array_items:array_inputs",
    "fitted": "edgemeter.agent.tasks.array_items:fitted",
    "Jackknifed": "edgemeter.agent.tasks.parts:Jackknifed",
    "Share": "edgemeter.agent.tasks.parts:Share",
    "item_accuracy": "edgemeter.agent.tasks.parts:item_accuracy",
    "Decoder": "edgemeter.agent.vision.decoders:Decoder",
    "Detections": "edgemeter.agent.vision.decoders:Detections",
    "Floats": "edgemeter.agent.vision.decoders:Floats",
    "Mask": "edgemeter.agent.vision.decoders:Mask",
    "PhotoFrame": "edgemeter.agent.vision.decoders:PhotoFrame",
    "select_boxes": "edgemeter.agent.vision.decoders.boxes:select",
    "Family": "edgemeter.agent.vision.decoders.family:Family",
    "Pictures": "edgemeter.agent.vision.decoders.family:Pictures",
    "Recognition": "edgemeter.agent.vision.decoders.family:Recognition",
    "UnknownModel": "edgemeter.agent.vision.decoders.family:UnknownModel",
    "Preprocessor": "edgemeter.agent.vision.preprocess:Preprocessor",
    "input_of": "edgemeter.agent.vision.preprocess:input_of",
    "values_of_first": "edgemeter.agent.vision.preprocess:values_of_first",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute = globals()[name] = resolve_name(_PLACES[name])
    return attribute


def __dir__() -> list[str]:
    return list(__all__)

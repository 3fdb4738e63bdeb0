"""The names of `edgemeter.plugin`, one a line: read by type checkers, and by the module when a name is used."""

from edgemeter.agent.base.errors import ConfigError as ConfigError
from edgemeter.agent.base.errors import EdgemeterError as EdgemeterError
from edgemeter.agent.base.errors import MeasurementError as MeasurementError
from edgemeter.agent.base.errors import TransientError as TransientError
from edgemeter.agent.base.errors import UnavailableError as UnavailableError
from edgemeter.agent.base.errors import one_line as one_line
from edgemeter.agent.contract.model_card import Card as Card
from edgemeter.agent.contract.model_card import CardOutput as CardOutput
from edgemeter.agent.contract.model_card import ImageInput as ImageInput
from edgemeter.agent.contract.model_file import head as _model_head
from edgemeter.agent.contract.record_accuracy import Accuracy as Accuracy
from edgemeter.agent.datasets import GroundTruth as GroundTruth
from edgemeter.agent.datasets import Reader as Reader
from edgemeter.agent.datasets import Targets as Targets
from edgemeter.agent.datasets.dataset import Dataset as Dataset
from edgemeter.agent.datasets.dataset import open_folder as open_folder
from edgemeter.agent.datasets.items import Item as Item
from edgemeter.agent.generators import ConcurrentGenerator as ConcurrentGenerator
from edgemeter.agent.generators import Generated as Generated
from edgemeter.agent.generators import Generator as Generator
from edgemeter.agent.generators import GeneratorAbilities as GeneratorAbilities
from edgemeter.agent.generators import Limits as Limits
from edgemeter.agent.generators import LoadedGenerator as LoadedGenerator
from edgemeter.agent.generators import Stamp as Stamp
from edgemeter.agent.generators import create as _create_generator
from edgemeter.agent.power import AbsentError as AbsentError
from edgemeter.agent.power import Description as Description
from edgemeter.agent.power import PowerSensor as PowerSensor
from edgemeter.agent.power import Rail as Rail
from edgemeter.agent.power import Reading as Reading
from edgemeter.agent.power.sysfs import read_number as read_number
from edgemeter.agent.power.values import as_unavailable as as_unavailable
from edgemeter.agent.power.values import scope_setting as scope_setting
from edgemeter.agent.runtimes import Array as Array
from edgemeter.agent.runtimes import Loaded as Loaded
from edgemeter.agent.runtimes import Options as Options
from edgemeter.agent.runtimes import Runtime as Runtime
from edgemeter.agent.runtimes import TensorInfo as TensorInfo
from edgemeter.agent.runtimes import create as _create_runtime
from edgemeter.agent.runtimes import dequantise as dequantise
from edgemeter.agent.runtimes.adapter import LibraryCandidate as LibraryCandidate
from edgemeter.agent.runtimes.adapter import check_inputs as check_inputs
from edgemeter.agent.runtimes.adapter import check_options as check_options
from edgemeter.agent.runtimes.adapter import load_library as load_library
from edgemeter.agent.runtimes.python_model import PythonModel as PythonModel
from edgemeter.agent.tasks import Inputs as Inputs
from edgemeter.agent.tasks import Outputs as Outputs
from edgemeter.agent.tasks import Parts as Parts
from edgemeter.agent.tasks import Task as Task
from edgemeter.agent.tasks.array_items import array_inputs as array_inputs
from edgemeter.agent.tasks.array_items import fitted as fitted
from edgemeter.agent.tasks.parts import item_accuracy as item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed as Jackknifed
from edgemeter.agent.tasks.parts import Share as Share
from edgemeter.agent.vision.decoders import Decoder as Decoder
from edgemeter.agent.vision.decoders import Detections as Detections
from edgemeter.agent.vision.decoders import Floats as Floats
from edgemeter.agent.vision.decoders import Mask as Mask
from edgemeter.agent.vision.decoders import PhotoFrame as PhotoFrame
from edgemeter.agent.vision.decoders.boxes import select as _select_boxes
from edgemeter.agent.vision.decoders.family import Family as Family
from edgemeter.agent.vision.decoders.family import Pictures as Pictures
from edgemeter.agent.vision.decoders.family import Recognition as Recognition
from edgemeter.agent.vision.decoders.family import UnknownModel as UnknownModel
from edgemeter.agent.vision.preprocess import Preprocessor as Preprocessor
from edgemeter.agent.vision.preprocess import input_of as input_of
from edgemeter.agent.vision.preprocess import values_of_first as values_of_first

# A name that its module calls otherwise: a type checker takes only an import under the same name
# for public.
create_generator = _create_generator
create_runtime = _create_runtime
model_head = _model_head
select_boxes = _select_boxes

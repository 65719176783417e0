# What type checkers and editors see of the package, whose names are imported on first use; __init__.py has them.
from ps_train.errors import CheckpointError as CheckpointError
from ps_train.errors import ClusterLostError as ClusterLostError
from ps_train.errors import ConfigError as ConfigError
from ps_train.errors import DataError as DataError
from ps_train.errors import PsTrainError as PsTrainError
from ps_train.errors import StoppedError as StoppedError
from ps_train.errors import UserCodeError as UserCodeError
from ps_train.graph.arrays import from_arrays as from_arrays
from ps_train.graph.batches import input_feed as input_feed
from ps_train.launch.training import Training as Training
from ps_train.parts.callbacks.thread import CallbackEvent as CallbackEvent
from ps_train.parts.callbacks.thread import RunningTraining as RunningTraining
from ps_train.parts.keras.plugins import KerasTwin as KerasTwin
from ps_train.parts.legacy.classic.server import Server as Server
from ps_train.parts.legacy.classic.server import replica_device_setter as replica_device_setter
from ps_train.parts.legacy.classic.sessions import MonitoredTrainingSession as MonitoredTrainingSession
from ps_train.parts.legacy.classic.sessions import Supervisor as Supervisor
from ps_train.parts.legacy.classic.sync_replicas import SyncReplicasOptimizer as SyncReplicasOptimizer
from ps_train.parts.live.model import LiveModel as LiveModel
from ps_train.parts.live.predict_calls import predict_client as predict_client
from ps_train.parts.live.predict_calls import predict_server as predict_server
from ps_train.parts.readers.file_ranges import file_ranges as file_ranges
from ps_train.parts.readers.negatives import negative_samples as negative_samples
from ps_train.parts.readers.range_batches import LineReader as LineReader
from ps_train.parts.readers.range_batches import ParquetReader as ParquetReader
from ps_train.parts.readers.range_batches import RecordReader as RecordReader
from ps_train.parts.readers.range_batches import range_batches as range_batches
from ps_train.parts.tables.contents import read_table as read_table
from ps_train.parts.tables.tables import embedding_table as embedding_table
from ps_train.parts.tables.tables import get_embedding_variable as get_embedding_variable
from ps_train.plugins.contracts import EVAL as EVAL
from ps_train.plugins.contracts import PREDICT as PREDICT
from ps_train.plugins.contracts import TRAIN as TRAIN
from ps_train.plugins.contracts import VALIDATION as VALIDATION
from ps_train.plugins.contracts import ModelSpec as ModelSpec

__version__: str

"""Training on sequences: batches by length, masked losses, a thin loop, checkpoints to resume from exactly."""

from throughtime.train import plots
from throughtime.train._callbacks import Callback, Progress
from throughtime.train._checkpoint import latest_checkpoint, load_weights, save_weights
from throughtime.train._distributed import Worker, workers
from throughtime.train._evaluate import evaluate
from throughtime.train._fit import fit
from throughtime.train._history import Epoch, History, Step
from throughtime.train._lost_workers import WorkerLostError
from throughtime.train._metrics import Mean, absolute_error, accuracy, cross_entropy, mask, masked_mean, squared_error
from throughtime.train._tensorboard import TensorBoard
from throughtime.train.data._batches import Batch, pad, streams
from throughtime.train.data._buckets import Buckets, loader
from throughtime.train.inspect._state_trace import ThroughTime, through_time
from throughtime.train.report import Report

__all__ = [
    "Batch",
    "Buckets",
    "Callback",
    "Epoch",
    "History",
    "Mean",
    "Progress",
    "Report",
    "Step",
    "TensorBoard",
    "ThroughTime",
    "Worker",
    "WorkerLostError",
    "absolute_error",
    "accuracy",
    "cross_entropy",
    "evaluate",
    "fit",
    "latest_checkpoint",
    "load_weights",
    "loader",
    "mask",
    "masked_mean",
    "pad",
    "plots",
    "save_weights",
    "squared_error",
    "streams",
    "through_time",
    "workers",
]

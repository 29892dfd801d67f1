"""Learning-rate sweeps over width and depth: where the optimum lies at every size, and how far it moves."""

from train.transfer.cells import sweep_rates as sweep_rates
from train.transfer.cells import transfer as transfer
from train.transfer.doubts import NotPredictableError as NotPredictableError
from train.transfer.outcome import Outcome as Outcome
from train.transfer.prediction import Prediction as Prediction
from train.transfer.prediction import predict as predict
from train.transfer.runs import train_runs as train_runs
from train.transfer.shift import Transfer as Transfer
from train.transfer.sweep import Optimum as Optimum
from train.transfer.sweep import Sweep as Sweep
from train.transfer.sweep import loss_at as loss_at
from train.transfer.sweep import optimum as optimum
from train.transfer.variants import Compared as Compared
from train.transfer.variants import compare_variants as compare_variants

"""How far finite ensembles are from their limits."""

from train.evaluate.compare import Comparison as Comparison
from train.evaluate.compare import compare as compare

"""How far finite ensembles are from their limits; what is found of a claim, with intervals."""

from train.evaluate.compare import Comparison as Comparison
from train.evaluate.compare import compare as compare
from train.evaluate.finding import Finding as Finding
from train.evaluate.interval import Interval as Interval
from train.evaluate.interval import every as every
from train.evaluate.interval import exact as exact
from train.evaluate.interval import jackknife as jackknife
from train.evaluate.interval import mean as mean
from train.evaluate.interval import median as median
from train.evaluate.interval import power as power
from train.evaluate.page import COLOURS as COLOURS
from train.evaluate.page import panels as panels

"""Studies: config files with functions of their own, the sizes they train, and figures of papers made of them."""

from train.study.experiment import Experiment as Experiment
from train.study.grid import conduct as conduct
from train.study.study import Study as Study
from train.study.study import study_of as study_of

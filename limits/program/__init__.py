"""Programs of networks, read with covariances in place of signals: the kernels of any module, off its forward code."""

from limits.program.read import ProgramKernels as ProgramKernels
from limits.program.read import measured as measured
from limits.program.read import read as read
from limits.program.values import NoLimitError as NoLimitError

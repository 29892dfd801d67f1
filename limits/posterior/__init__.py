"""Bayesian networks: the posterior at infinite width, its correction at finite width, and the kernels behind both."""

from limits.posterior.averages import Draws as Draws
from limits.posterior.averages import contraction as contraction
from limits.posterior.averages import pair_averages as pair_averages
from limits.posterior.equations import Stack as Stack
from limits.posterior.equations import backpropagated as backpropagated
from limits.posterior.equations import output_force as output_force
from limits.posterior.equations import prior_kernels as prior_kernels
from limits.posterior.infer import posterior as posterior
from limits.posterior.prior import draw_kernels as draw_kernels
from limits.posterior.prior import log_evidence as log_evidence
from limits.posterior.prior import response_to_output as response_to_output
from limits.posterior.result import Posterior as Posterior
from limits.posterior.solver import DivergenceError as DivergenceError
from limits.posterior.solver import Solution as Solution
from limits.posterior.solver import Sweeps as Sweeps
from limits.posterior.solver import solve as solve

"""Infinite depth, and what depth does to kernels."""

from limits.depth.convergence import Convergence as Convergence
from limits.depth.convergence import convergence as convergence
from limits.depth.profile import one_step_profile as one_step_profile
from limits.depth.profile import one_step_recursion as one_step_recursion

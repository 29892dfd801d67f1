"""Bayesian networks: the posterior at infinite width, its correction at finite width, and the kernels behind both."""

from limits.posterior.result import Posterior

__all__ = ["Posterior"]

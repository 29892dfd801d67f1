"""The posterior of finite Bayesian networks, by Markov chains: what the theory in `limits.posterior` is held against."""

from train.posterior.chains import NotConvergedWarning as NotConvergedWarning
from train.posterior.sample import sample_posterior as sample_posterior

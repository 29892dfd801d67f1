"""Data statistics through layers: cumulants of class-conditional data from a network's inputs to its outputs.

    data = class_cumulants(x, y)                    # or xor_mixture(), third_cumulant_mixture(), gaussian_surrogate(x, y)
    statistical_loss(net, variables, data)          # the loss as a function of the data's cumulants; differentiate it
    propagate(net, variables, data)                 # mean and covariance of every layer

Layers are counted as in `MLP.depth`: L hidden layers, and a linear readout.

Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, chapter 2 and appendix A.
"""

from limits.cumulants.cumulants import Cumulants as Cumulants
from limits.cumulants.cumulants import Mixture as Mixture
from limits.cumulants.cumulants import empirical_cumulants as empirical_cumulants
from limits.cumulants.cumulants import higher_cumulants as higher_cumulants
from limits.cumulants.cumulants import through_linear as through_linear
from limits.cumulants.mixture import Surrogate as Surrogate
from limits.cumulants.mixture import class_cumulants as class_cumulants
from limits.cumulants.mixture import density as density
from limits.cumulants.mixture import divergence as divergence
from limits.cumulants.mixture import gaussian_mixture as gaussian_mixture
from limits.cumulants.mixture import gaussian_surrogate as gaussian_surrogate
from limits.cumulants.mixture import pooled as pooled
from limits.cumulants.mixture import sample as sample
from limits.cumulants.mixture import third_cumulant_mixture as third_cumulant_mixture
from limits.cumulants.mixture import xor_mixture as xor_mixture
from limits.cumulants.model import expected_overlaps as expected_overlaps
from limits.cumulants.model import indefinite as indefinite
from limits.cumulants.model import output_statistics as output_statistics
from limits.cumulants.model import overlap_phase as overlap_phase
from limits.cumulants.model import overlaps as overlaps
from limits.cumulants.model import propagate as propagate
from limits.cumulants.model import statistical_loss as statistical_loss
from limits.cumulants.moments import diagrams as diagrams
from limits.cumulants.moments import gaussian_moments as gaussian_moments
from limits.cumulants.moments import mean_correction as mean_correction
from limits.cumulants.moments import quadratic_moments as quadratic_moments
from limits.cumulants.moments import taylor_mean as taylor_mean
from limits.cumulants.quadrature import quadrature_moments as quadrature_moments
from limits.cumulants.relu import relu_moments as relu_moments
from limits.kernels.bivariate import bivariate as bivariate

"""Regression and training dynamics with a given kernel."""

from limits.predict.conjugate_gradients import LinearSolution as LinearSolution
from limits.predict.conjugate_gradients import pivoted_cholesky as pivoted_cholesky
from limits.predict.conjugate_gradients import solve as solve
from limits.predict.cross_entropy import cross_entropy_dynamics as cross_entropy_dynamics
from limits.predict.evidence import LeaveOneOut as LeaveOneOut
from limits.predict.evidence import leave_one_out as leave_one_out
from limits.predict.evidence import log_marginal_likelihood as log_marginal_likelihood
from limits.predict.gaussian_process import GaussianPosterior as GaussianPosterior
from limits.predict.gaussian_process import draws as draws
from limits.predict.gaussian_process import kernel_regression as kernel_regression
from limits.predict.gaussian_process import posterior as posterior
from limits.predict.influence import influence as influence
from limits.predict.mse import mse_dynamics as mse_dynamics
from limits.predict.mse import mse_ensemble as mse_ensemble
from limits.predict.mse import response as response
from limits.predict.nystrom import LowRank as LowRank
from limits.predict.nystrom import nystrom as nystrom
from limits.predict.ridge import RidgePath as RidgePath
from limits.predict.ridge import error_rate as error_rate
from limits.predict.ridge import feature_ridge as feature_ridge
from limits.predict.ridge import ridge_path as ridge_path
from limits.predict.steps import LinearRule as LinearRule

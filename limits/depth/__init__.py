"""What depth does to kernels: phases, recursions to any depth, limiting kernels and the rates at which they come."""

from limits.depth.deep_kernels import DeepKernels as DeepKernels
from limits.depth.diagram import PhaseDiagram as PhaseDiagram
from limits.depth.diagram import phase_diagram as phase_diagram
from limits.depth.phases import Phase as Phase
from limits.depth.phases import correlation_map as correlation_map
from limits.depth.phases import edge_of_chaos as edge_of_chaos
from limits.depth.phases import phase as phase
from limits.depth.phases import variance_map as variance_map
from limits.depth.plots import plot_phase_diagram as plot_phase_diagram
from limits.depth.plots import plot_spectra as plot_spectra
from limits.depth.rates import Limit as Limit
from limits.depth.rates import Rate as Rate
from limits.depth.rates import convergence_rate as convergence_rate
from limits.depth.rates import limiting_kernel as limiting_kernel
from limits.depth.rates import log_normaliser as log_normaliser
from limits.depth.recursions import deep_kernels as deep_kernels
from limits.depth.recursions import deep_pair as deep_pair
from limits.depth.spectra import sphere_spectrum as sphere_spectrum
from limits.depth.spectra import zonal_eigenvalues as zonal_eigenvalues

"""What trained networks look like inside, from their checkpoints, and how far they are from their limits."""

from train.analysis.against import against_twin as against_twin
from train.analysis.against import limits_of as limits_of
from train.analysis.alignment import cka as cka
from train.analysis.alignment import hsic as hsic
from train.analysis.alignment import kernel_alignment as kernel_alignment
from train.analysis.alignment import label_alignment as label_alignment
from train.analysis.analyse import PARTS as PARTS
from train.analysis.analyse import analyse as analyse
from train.analysis.kernels import drift as drift
from train.analysis.kernels import layer_kernels as layer_kernels
from train.analysis.kernels import tangent_kernel as tangent_kernel
from train.analysis.linearisation import linearisation_distance as linearisation_distance
from train.analysis.linearisation import parameter_movement as parameter_movement
from train.analysis.sharpness import edge_of_stability as edge_of_stability
from train.analysis.sharpness import largest_eigenvalues as largest_eigenvalues
from train.analysis.sharpness import sharpness as sharpness
from train.analysis.spectra import effective_rank as effective_rank
from train.analysis.spectra import participation_ratio as participation_ratio
from train.analysis.spectra import spectrum as spectrum
from train.analysis.spectra import weight_spectra as weight_spectra

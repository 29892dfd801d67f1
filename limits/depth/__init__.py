"""What depth does to signals: kernels, their responses and fluctuations layer by layer, and the scale of residual branches."""

from limits.depth.deep_scale import deep_scale as deep_scale
from limits.depth.deep_scale import saturation_variance as saturation_variance
from limits.depth.entropy import uniform_divergence as uniform_divergence
from limits.depth.entropy import uniform_variance as uniform_variance
from limits.depth.finite import finite_kernels as finite_kernels
from limits.depth.fluctuations import Fluctuations as Fluctuations
from limits.depth.fluctuations import fluctuations as fluctuations
from limits.depth.fluctuations import variance_per_layer as variance_per_layer
from limits.depth.output_response import log_response as log_response
from limits.depth.recommend import Recommendation as Recommendation
from limits.depth.recommend import recommend_residual_scale as recommend_residual_scale
from limits.depth.residual_scale import estimated_scale as estimated_scale
from limits.depth.residual_scale import optimal_scale as optimal_scale
from limits.depth.response import Response as Response
from limits.depth.response import input_kernel as input_kernel
from limits.depth.response import response as response

"""What depth does to signals: kernels, their responses and fluctuations layer by layer, and the scale of residual branches."""

from limits.depth.response import Response as Response
from limits.depth.response import input_kernel as input_kernel
from limits.depth.response import response as response

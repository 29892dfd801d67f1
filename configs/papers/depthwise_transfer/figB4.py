"""Figure B.4: as figure 2, with layer normalisation over the positions of every channel.

small: 16 minutes on two cores with much other work, handwritten digits. paper: CIFAR-10, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

from configs.papers.depthwise_transfer import fig2
from configs.papers.depthwise_transfer.fig2 import batches, claims, loss, make, optimizer  # noqa: F401

get_config = fig2.get_config.but("figB4", {"norm": "spatial"})

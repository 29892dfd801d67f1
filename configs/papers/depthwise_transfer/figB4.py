"""Figure B.4: as figure 2, with layer normalisation over the positions of every channel.

small: 16 minutes on two cores with much other work, handwritten digits. paper: CIFAR-10, 20 epochs.
found: verdicts were not taken again since claims are judged by intervals.
"""

from configs.papers.depthwise_transfer import fig2
from configs.papers.depthwise_transfer.fig2 import batches as batches
from configs.papers.depthwise_transfer.fig2 import claims as claims
from configs.papers.depthwise_transfer.fig2 import loss as loss
from configs.papers.depthwise_transfer.fig2 import make as make
from configs.papers.depthwise_transfer.fig2 import optimizer as optimizer


def get_config(size="small"):
    return fig2.get_config(size, "figB4", "spatial")

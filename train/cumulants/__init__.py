"""Networks trained on what `limits.cumulants` says of their data, or on the data; and the cumulants of networks' own signals."""

from train.cumulants.descend import Trained as Trained
from train.cumulants.descend import train_samples as train_samples
from train.cumulants.descend import train_statistics as train_statistics
from train.cumulants.signals import signal_cumulants as signal_cumulants

"""Labelled samples as the trainer takes them: sources, augmentation, and batches that are functions of the step."""

from train.stream.augment import augmentation as augmentation
from train.stream.batches import Batches as Batches
from train.stream.batches import evaluation_batches as evaluation_batches
from train.stream.sources import source as source

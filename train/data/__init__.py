"""Data: tasks of a few points, sources of many labelled samples, and batches of either.

Which images "digits" are depends on the door, since accuracies of runs must be of the same images, while small tasks are drawn
anew by every seed; `train.data.tasks.handwritten` is where all of them come from:

- `digits(n_train, n_test, seed=…)` and `make_task("digits", …)`: drawn from all 1,797 by the seed;
- `image_batches("digits", n_train=…, seed=…)`: those same training points, in minibatches (there is no test set);
- `source("digits", "train" or "test")`: 1,437 and 360, the same for every seed.
"""

from train.data.augment import augmentation as augmentation
from train.data.batches import Batches as Batches
from train.data.batches import evaluation_batches as evaluation_batches
from train.data.batches import image_batches as image_batches
from train.data.batches import minibatches as minibatches
from train.data.batches import shuffled_batches as shuffled_batches
from train.data.file_arrays import file_arrays as file_arrays
from train.data.file_arrays import file_task as file_task
from train.data.languages import RandomHierarchy as RandomHierarchy
from train.data.languages import associative_recall as associative_recall
from train.data.languages import random_hierarchy as random_hierarchy
from train.data.sources import source as source
from train.data.tasks import TASKS as TASKS
from train.data.tasks import digits as digits
from train.data.tasks import gaussian_teacher as gaussian_teacher
from train.data.tasks import make_task as make_task
from train.data.tasks import on_sphere as on_sphere
from train.data.tasks import sphere as sphere
from train.data.tasks import xor_clusters as xor_clusters
from train.data.tasks import xor_mixture as xor_mixture
from train.data.text import file_text as file_text
from train.data.text import python_text as python_text
from train.data.token_tasks import of_tokens as of_tokens

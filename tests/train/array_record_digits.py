"""scikit-learn's digits as a TFDS data set in array_record files, made without TensorFlow."""

from pathlib import Path
from typing import Any

import sklearn.datasets
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter
from PIL import Image

SPLITS = {"train": range(1500), "test": range(1500, 1797)}  # rows of scikit-learn's, in its order


def build(folder: Path, name: str = "array_record_digits", shards: int = 2) -> None:
    """The data set, version 1.0.0, under `folder`, which then is a data_dir of TFDS.

    Images are encoded by Pillow before TFDS sees them: its own encoder of arrays is TensorFlow's.
    """
    bunch: Any = sklearn.datasets.load_digits()
    root: Any = folder / name / "1.0.0"
    root.mkdir(parents=True)
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(8, 8, 1), encoding_format="png"),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
    )
    infos = []
    for split, rows in SPLITS.items():
        template = tfds.core.ShardedFileTemplate(root, dataset_name=name, split=split, filetype_suffix="array_record")
        size, each = 0, -(-len(rows) // shards)
        parts = [rows[start : start + each] for start in range(0, len(rows), each)]
        for shard, part in enumerate(parts):
            path = template.sharded_filepath(shard_index=shard, num_shards=shards)
            writer = ArrayRecordWriter(str(path), "group_size:1")
            for row in part:
                image = Image.fromarray(bunch.images[row].astype("uint8"))
                record = features.serialize_example(
                    features.encode_example({"image": image, "label": int(bunch.target[row])})
                )
                writer.write(record)
                size += len(record)
            writer.close()
        infos.append(tfds.core.SplitInfo(split, [len(part) for part in parts], size, template))
    tfds.folder_dataset.write_metadata(
        data_dir=root, features=features, split_infos=infos, version="1.0.0", check_data=False
    )

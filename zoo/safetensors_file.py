"""Arrays by name in one file, in the format that weights are shared in: a header of JSON, then the numbers.

Reference: the safetensors format: 8 bytes (the header's length), the header ({name: dtype, shape, data_offsets}), the data.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

_KINDS = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": jnp.bfloat16, "I64": np.int64, "I32": np.int32,
    "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
_LARGEST = 100 * 2**20  # of a header, in bytes


def read_safetensors(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file, by name; they are read when they are used."""
    path = Path(path)
    with path.open("rb") as file:
        length, size = int.from_bytes(file.read(8), "little"), path.stat().st_size
        if not 2 <= length <= min(_LARGEST, size - 8):
            raise ValueError(f"{path.name} is no safetensors file: its header would have {length} of {size} bytes.")
        header = _header(file.read(length), path.name)
    data = np.memmap(path, np.uint8, "r", 8 + length) if size > 8 + length else np.zeros(0, np.uint8)
    found = {}
    for name, each in header.items():
        if name == "__metadata__":
            continue
        if each["dtype"] not in _KINDS:
            raise ValueError(f"{path.name}: {name} has entries of the type {each['dtype']}, which cannot be read here.")
        kind, shape, (start, stop) = np.dtype(_KINDS[each["dtype"]]), tuple(each["shape"]), each["data_offsets"]
        if stop > len(data) or stop - start != kind.itemsize * math.prod(shape):
            raise ValueError(
                f"{path.name}: {name} of shape {shape} needs other bytes than {start} to {stop}: it is cut or damaged."
            )
        found[name] = data[start:stop].view(kind).reshape(shape)
    return found


def _header(text: bytes, name: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
        for each in (array for name, array in header.items() if name != "__metadata__"):
            start, stop = each["data_offsets"]
            counts = [start, stop - start, *each["shape"]]
            if not isinstance(each["dtype"], str) or any(type(n) is not int or n < 0 for n in counts):
                raise ValueError(f"an array of type {each['dtype']}, shape {each['shape']}, bytes {start} to {stop}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{name}: its header is damaged ({type(error).__name__}: {error}); get the file anew."
        ) from error
    return header


def safetensors_of(folder: Path) -> list[Path]:
    """The files of weights in a folder: those that its index names, where these are several."""
    index, files = folder / "model.safetensors.index.json", sorted(folder.glob("*.safetensors"))
    if folder / "model.safetensors" in files and index.exists():  # the whole in one file, beside its parts
        return [folder / "model.safetensors"]
    if index.exists():
        try:
            named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            files = [folder / name for name in sorted({Path(each).name for each in named})]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{index} is no index of weights ({type(error).__name__}: {error}).") from error
        if missing := [file.name for file in files if not file.exists()]:
            raise FileNotFoundError(
                f"{len(missing)} of the {len(files)} files that {index.name} names are missing in {folder}: "
                f"{', '.join(missing[:3])}. Get them too."
            )
    if not files:
        raise FileNotFoundError(f"load_gpt: there is no *.safetensors in {folder}.")
    return files


def write_safetensors(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays by name, as a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_safetensors(f"{folder}/a.safetensors", {"a": np.ones((2, 3), np.float32)})
    ...     read_safetensors(f"{folder}/a.safetensors")["a"].shape
    (2, 3)
    """
    words, header, at = {np.dtype(kind): word for word, kind in _KINDS.items()}, {}, 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": words[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with Path(path).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())

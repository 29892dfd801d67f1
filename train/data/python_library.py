"""The sources of Python's standard library: text that is on every machine without a download.

Modules were taken whose files are the same, byte for byte, in Python 3.11.2, 3.11.7, 3.12.1, 3.12.10 and 3.13.0, of more
than 1,500 bytes and without tables of characters; every tenth, from the ninth on by name, is held out. Those of another
Python may differ, which a hash of each shows.
"""

import hashlib
import sysconfig
from pathlib import Path

# Module: the first digits of the SHA-256 of its file, with lines that end in one character.
MODULES = {
    "train": """
        __future__:981d4c398849 _compression:3ad5d6062747 _markupbase:cb14dd6f2e24 _py_abc:f9c6fe3dd9b5
        _sitebuiltins:b9388bc1d6d1 _threading_local:e1bf3dae66d0 _weakrefset:91895a451d06
        asyncio/exceptions:a5971f88be14 asyncio/trsock:c0eac37debcc asyncio/windows_utils:e6fcffefa252
        concurrent/futures/_base:8c6d5f09f7c5 curses/__init__:d8730e360dd0 curses/has_key:15a052812d9a
        email/_encoded_words:4178321600c0 email/contentmanager:2d81026aef17 email/headerregistry:fada56c25b6a
        email/mime/image:460be5b50cfc heapq:6d43277e5c76 importlib/metadata/_functools:3ec636fb8aeb
        importlib/metadata/_itertools:72faffdaff01 importlib/metadata/_text:1c2b0592c669 json/__init__:d5d41e2c2904
        multiprocessing/dummy/__init__:9127a40ea0ff multiprocessing/dummy/connection:d63dd1979fde
        multiprocessing/heap:f6bb79bb99b9 multiprocessing/popen_forkserver:0588ad0e5a36
        multiprocessing/reduction:4999f8b9ae7b multiprocessing/sharedctypes:77ef52291247 optparse:07d224301cba
        pyclbr:e8ca09333701 string:24aeae1f0526 stringprep:60b6c8358109 tomllib/_parser:4579b04a7566
        tomllib/_re:75b8e0e42859 tracemalloc:c2cc84a05b82 unittest/signals:f8286e818ca5 unittest/suite:ed2da92bc9f9
        unittest/util:fdcc640c3505 urllib/response:7e6c3b6d7a95 weakref:56f8d313fb74 wsgiref/headers:0fbf95a47d8e
        wsgiref/types:ba66d30ce511 xml/dom/__init__:b415a6f3d366 xml/dom/domreg:826b02a80393
        xml/dom/pulldom:614b88673d49 xml/etree/ElementPath:ae8a80a8b515 xml/etree/__init__:91950edfb196
        xml/sax/handler:64c7aae49f1d xml/sax/saxutils:3fe2cdb6386e zoneinfo/_common:67deaf0ba41a
    """,
    "test": """
        asyncio/protocols:1d1b49988c33 email/quoprimime:77b454bd3ba3 multiprocessing/popen_spawn_posix:97b5d25aa479
        unittest/_log:905672317ab2 xml/dom/minicompat:42974c4c6780
    """,
}


def documents(split: str, any_version: bool = False) -> list[bytes]:
    """The files of a split of `MODULES`. Raises where they are not those that numbers are known of, unless any version will do.

    >>> [len(b"".join(documents(split))) for split in ("train", "test")]
    [472736, 24963]
    """
    folder, found, other = Path(sysconfig.get_path("stdlib")), [], []
    for word in MODULES[split].split():
        name, _, digits = word.partition(":")
        file = folder / f"{name}.py"
        data = file.read_bytes().replace(b"\r\n", b"\n") if file.exists() else b""
        if hashlib.sha256(data).hexdigest()[: len(digits)] != digits:
            other.append(f"{name}.py")
        found.append(data)
    if other and not any_version:
        raise ValueError(
            f"Of the {len(found)} files of Python's standard library that are text to {split} on, {len(other)} in {folder} are "
            f"missing or another version ({', '.join(other[:5])}{', …' if len(other) > 5 else ''}), so that bits a byte would "
            "be of another text. Run with Python 3.11, 3.12 or 3.13, take them as they are with any_version=True, or name a "
            'text of your own: {"name": "text", "path": …}.'
        )
    return [data for data in found if data]

"""Archives of results: the same bytes for the same files, and whatever a stranger may have made of one is refused whole."""

import io
import os
import random
import shutil
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from limits.kept.archive import LIST, _sum, pack_files, unpack_files
from limits.kept.store import DamagedError, sealed

FILES = {"report.json": b'{"a": 1}', "cells/γ_width_8.npz": bytes(range(256)) * 40}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Some files, in an order and with times and rights of their own."""
    for name, body in FILES.items():
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_bytes(body)
    return tmp_path / "from"


def test_there_and_back_and_the_same_bytes_again(folder: Path, tmp_path: Path):
    data = pack_files(folder, FILES, {"code": "x"})
    for place in folder.rglob("*"):
        place.chmod(0o700)
        os.utime(place, (1e9, 1e9))
    assert pack_files(folder, reversed(FILES), {"code": "x"}) == data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {(each.date_time, each.external_attr >> 16) for each in archive.infolist()} == {
            ((1980, 1, 1, 0, 0, 0), 0o100644)
        }
    listed = unpack_files(data, tmp_path / "to")
    assert listed["code"] == "x"
    assert {n: (tmp_path / "to" / n).read_bytes() for n in listed["files"]} == FILES
    assert pack_files(tmp_path / "to", listed["files"], {"code": "x"}) == data
    assert not [each for each in tmp_path.iterdir() if each.name.endswith(".part")]
    with pytest.raises(FileExistsError, match="nothing is written over it"):
        unpack_files(data, tmp_path / "to")


def unsealed_list(text: str) -> bytes:
    """An archive whose list is this text."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(LIST, text)
    return buffer.getvalue()


def forged(
    *entries: tuple[str, bytes], mode: int = stat.S_IFREG | 0o644, method: int = zipfile.ZIP_DEFLATED, **listed: Any
) -> bytes:
    """An archive as somebody else may write it, whose list is right but for what is given."""
    files = {name: {"bytes": len(body), "blake2b": _sum(body)} for name, body in entries}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(LIST, sealed({"format": 1, "files": files, **listed}))
        for name, body in entries:
            entry = zipfile.ZipInfo("x")
            entry.filename, entry.external_attr = name, mode << 16
            archive.writestr(entry, body, method)
    return buffer.getvalue()


PLAIN = ("report.json", b"{}")
SIZED = {"report.json": {"bytes": 2, "blake2b": _sum(b"{}")}}
NAMES = [
    "../up", "a/../../up", "/abs", "//host/x", "a//b", "a/./b", "C:x", "a\\b", "..\\up", ".hidden", "a/", "", "nul",
    "COM1.txt", "dot.", "new\nline", "a\0b", "x" * 401, "cells/.lock",
]  # fmt: skip
BAD: dict[str, tuple[bytes, str]] = {
    **{repr(name[:12]): (forged((name, b"x")), "no plain path|a folder|in its list|differ in") for name in NAMES},
    "link": (forged(PLAIN, mode=stat.S_IFLNK | 0o777), "a link, a folder or a device"),
    "device": (forged(PLAIN, mode=stat.S_IFCHR | 0o666), "a link, a folder or a device"),
    "pipe": (forged(PLAIN, mode=stat.S_IFIFO | 0o666), "a link, a folder or a device"),
    "other packing": (forged(PLAIN, method=zipfile.ZIP_BZIP2), "packed in a way"),
    "one name in two cases": (
        forged(PLAIN, ("Report.json", b"x")),
        "has 'report.json' and 'Report.json', which are one name on some systems",
    ),
    "one name twice": (
        forged(PLAIN, ("report.jso_", b"{}")).replace(b"report.jso_", b"report.json"),
        r"two entries of one name, 'report\.json'\.",
    ),
    "too many": (forged(*((f"a{i}", b"") for i in range(10_000))), r"has 10,001 entries, more than 10,000\."),
    "a file and a folder": (forged(("a", b"x"), ("a/b", b"y")), "has a both as a file and as the folder of a/b"),
    "a folder and a file": (forged(("A/b", b"y"), ("a", b"x")), "has A both as a file and as the folder of A/b"),
    "below the list": (forged((f"{LIST}/a/b", b"y")), f"has {LIST} both as a file"),
    "a long name": (forged(("a/" + "x" * 300, b"x")), "one name has 300 bytes, more than 200"),
    "unlisted": (forged(PLAIN, ("more", b"x"), files=SIZED), "differ in more"),
    "missing": (forged(files=SIZED), "differ in report.json"),
    "other bytes": (forged(("report.json", b"[]"), files=SIZED), "does not match its checksum"),
    "more bytes than listed": (forged(("report.json", b"{}" + b" " * 9), files=SIZED), "more than the 2 bytes"),
    "fewer": (forged(("report.json", b"{"), files=SIZED), "does not match its checksum"),
    "too large": (forged(("big", b"0" * 9000)), "more than 5,000 bytes"),
    "too large together": (forged(("a", b"0" * 3000), ("b", b"0" * 3000)), "more than 5,000 bytes"),
    "no size": (forged(PLAIN, files={"report.json": {"bytes": -1}}), "no size in its list"),
    "no table": (forged(PLAIN, files=[1]), "no table of files"),
    "a later format": (forged(PLAIN, format=2), "has format 2"),
    "no sealed list": (unsealed_list("{}"), rf"{LIST}, the list in the archive, cannot be used: it is no JSON"),
    "no JSON": (unsealed_list("hello"), rf"{LIST}, the list in the archive, cannot be used: it is no JSON"),
    "another sum": (
        unsealed_list('{"a": 1, "checksum": "0"}'),
        rf"{LIST}, the list in the archive, .* its text does not match its checksum",
    ),
    "no archive": (b"hello", "cannot be read"),
    "cut off": (forged(PLAIN)[:-30], "cannot be read"),
    "empty": (zipfile.ZIP_STORED.to_bytes(1, "little"), "cannot be read"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused_leaves_nothing_behind(case: str, tmp_path: Path):
    data, why = BAD[case]
    with pytest.raises(DamagedError, match=why):
        unpack_files(data, tmp_path / "to", largest=5000)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["deleted", "flipped"])
def test_changed_bytes_are_a_sentence_or_change_nothing(kind: str, tmp_path: Path):
    whole, draw = forged(("a", bytes(range(256)) * 4), ("b/c", b"{}")), random.Random(0)
    for _ in range(200):
        data, at = bytearray(whole), draw.randrange(len(whole))
        if kind == "deleted":
            del data[at : at + draw.randrange(1, 50)]
        else:
            data[at] ^= 1 << draw.randrange(8)
        try:
            unpack_files(bytes(data), tmp_path / "to")
        except DamagedError:
            assert not list(tmp_path.iterdir())
        else:
            assert (tmp_path / "to/a").read_bytes() == bytes(range(256)) * 4
            assert (tmp_path / "to/b/c").read_bytes() == b"{}"
            shutil.rmtree(tmp_path / "to")


def test_a_folder_before_two_dots_is_not_made(tmp_path: Path):
    data = forged(("a", b"1"))
    with pytest.raises(FileNotFoundError, match=r"new/\.\. is not there: name"):
        unpack_files(data, tmp_path / "new/../to")
    assert not [*tmp_path.iterdir()]
    (tmp_path / "there").mkdir()
    unpack_files(data, tmp_path / "there/../one/to")
    assert (tmp_path / "one/to/a").read_bytes() == b"1"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):  # nothing is made where a link leads nowhere
        unpack_files(data, tmp_path / "link/to")


def test_a_size_that_a_header_claims_binds_nobody(tmp_path: Path):
    data = bytearray(forged(("a", b"0" * 4000), files={"a": {"bytes": 10, "blake2b": _sum(b"0" * 10)}}))
    for place in (data.index(b"PK\x03\x04", 30) + 22, data.rindex(b"PK\x01\x02") + 24):
        assert int.from_bytes(data[place : place + 4], "little") == 4000
        data[place : place + 4] = (10).to_bytes(4, "little")
    with pytest.raises(DamagedError, match=r"cannot be read|more than the 10 bytes"):
        unpack_files(bytes(data), tmp_path / "to")
    assert not list(tmp_path.iterdir())


def test_a_list_that_was_changed(folder: Path, tmp_path: Path):
    data = pack_files(folder, ["report.json"], {"code": "x"})
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for entry in old.infolist():
            new.writestr(entry, old.read(entry).replace(b'"x"', b'"y"'))
    with pytest.raises(DamagedError, match="does not match its checksum"):
        unpack_files(buffer.getvalue(), tmp_path / "to")


def test_no_link_is_packed(folder: Path):
    (folder / "link.json").symlink_to("/etc/hostname")
    with pytest.raises(OSError, match=r"symbolic links|Too many levels"):
        pack_files(folder, ["link.json"], {})

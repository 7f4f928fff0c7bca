"""Files that a fuzzer found to be trouble, and files that promise far more than they hold."""

import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib
from itertools import pairwise

import numpy as np
import pytest
import torch
from fuzz import failure_of
from fuzz_world import SHORT, make_npz_data
from make_data import make_cifar_python, make_folder, make_mnist, small_cifar
from mutate import safetensors
from shortened import NET, exact_trial

import pseudocoreset as pc
from made_beyond import made_beyond
from made_cells import made
from pseudocoreset.engine.files import write_json
from pseudocoreset.reproduce.beyond.stored import write_cell
from pseudocoreset.reproduce.cells import Scope, cells_of
from pseudocoreset.reproduce.stored import write_measured

HUGE = 10**12


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Data, a coreset and a posterior of them."""
    root = tmp_path_factory.mktemp("bad-files")
    make_npz_data(root / "small" / "data.npz")
    data = pc.load_data(f"npz:{root / 'small' / 'data.npz'}")
    coreset = pc.distill(data, (), "random", ipc=1, net=NET, progress=False)
    coreset.save(root / "coreset.safetensors")
    posterior = pc.sample(coreset, pc.SGHMC(epochs=2, every=1), chains=1, progress=False)
    posterior.save(root / "posterior.safetensors")
    np.savez(root / "images.npz", images=np.zeros((2, 8, 8), np.uint8))
    return root


def ends(*words, code):
    """Check that a command ends with this code, in a sentence and in little memory."""
    wrong = failure_of([str(word) for word in words], code)
    assert wrong is None, wrong


def parts(path):
    """The header of a safetensors file, our metadata in it, and the rest."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["pseudocoreset"]), content[8 + length :]


def saying(path, out, **changes):
    """The same file with other values at places in its metadata, such as details__seed."""
    header, metadata, body = parts(path)
    for place, value in changes.items():
        *outer, last = place.split("__")
        holder = metadata
        for key in outer:
            holder = holder[key]
        holder[last] = value
    header["__metadata__"]["pseudocoreset"] = json.dumps(metadata)
    out.write_bytes(safetensors(header, body))
    return out


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 10**400])
def test_numbers_that_are_none_are_refused(world, tmp_path, number):
    path = saying(
        world / "coreset.safetensors", tmp_path / "a.safetensors", provenance__seed=number
    )
    ends("sample", path, "--out", tmp_path / "out", *SHORT, code=2)


def test_metadata_nested_too_deeply_are_refused(world, tmp_path):
    header, _, body = parts(world / "coreset.safetensors")
    header["__metadata__"]["pseudocoreset"] = "[" * 100_000
    (tmp_path / "a.safetensors").write_bytes(safetensors(header, body))
    ends("info", tmp_path / "a.safetensors", code=2)


def test_networks_that_are_no_list_are_not_counted(world, tmp_path):
    path = saying(
        world / "coreset.safetensors", tmp_path / "a.safetensors", provenance__config={"nets": 0.5}
    )
    data = ["--data", f"npz:{world / 'small' / 'data.npz'}", "--seeds", "1"]
    ends("evaluate", path, *data, *SHORT, code=0)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_networks_that_put_out_nan_are_refused(world, tmp_path, command):
    posterior = pc.Posterior.load(world / "posterior.safetensors")
    object.__setattr__(posterior, "params", torch.full_like(posterior.params, 1e30))
    posterior.save(tmp_path / "a.safetensors")
    if command == "predict":
        words = [world / "images.npz", "--json", tmp_path / "out.json"]
    else:
        words = ["--data", f"npz:{world / 'small' / 'data.npz'}"]
    ends(command, tmp_path / "a.safetensors", *words, code=2)


@pytest.mark.parametrize("side", [0, -8, 10**6, HUGE])
def test_sides_that_no_image_has_are_refused(world, tmp_path, side):
    path = saying(
        world / "posterior.safetensors", tmp_path / "a.safetensors", input_shape=[1, side, side]
    )
    make_folder(tmp_path / "images")
    ends("predict", path, tmp_path / "images", code=2)


def test_pickled_storage_without_its_numbers_is_refused(world, tmp_path):
    torch.save(torch.arange(3), tmp_path / "labels_best.pt")
    torch.save(torch.zeros(3, 1, 8, 8), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    damaged = bytearray((tmp_path / "old.pt").read_bytes())
    listed = damaged.index(b"\x80\x02]q\x00X")  # the keys of all storages, each with its length
    damaged[listed + 10] ^= 1  # a digit of the first
    (tmp_path / "images_best.pt").write_bytes(bytes(damaged))
    data = ["--data", f"npz:{world / 'small' / 'data.npz'}", "--net", NET, "--seeds", "1"]
    ends("evaluate", tmp_path, *data, *SHORT, code=2)


def test_labels_that_are_no_numbers_are_refused(world, tmp_path):
    np.save(tmp_path / "labels.npy", np.zeros(30, "V4"))
    words = ["--data", f"npz:{world / 'small' / 'data.npz'}", "--corruptions", "fog"]
    ends("evaluate", world / "posterior.safetensors", *words, "--corruptions-dir", tmp_path, code=2)


CELL = cells_of("table1", "paper", "cifar10")[5]
CELLS = {
    "nested": "[" * 100_000,
    "no list": {"seeds": 3},
    "no seed": {"samplers": [{}]},
    "config": {"coreset": {"images": 10, "config": 3}},
    "images": {"coreset": {"images": "<b>", "config": {"steps": 1}}},
    "no images": {"coreset": {"config": {"steps": 1}}},
    "no store": {"experts": 1},
    "no experts": {"experts": None},
    "temperature": {"protocol": {"epochs": 1, "temperature": "hot", "weight_decay": 0.1}},
    "score": {"accuracy": 10**400},
}


@pytest.mark.parametrize("change", CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("words", [["--list"], []], ids=["list", "render"])
def test_cell_that_was_not_measured_so_is_refused(tmp_path, change, words):
    path = CELL.path(tmp_path, Scope("cifar10"))
    write_measured(path, made(CELL, 50.0))
    if isinstance(change, dict):
        change = json.dumps({**json.loads(path.read_text()), **change})
    path.write_text(change)
    ends("reproduce", "table1", "--out", tmp_path, *words, code=2)


@pytest.mark.parametrize("name", ["distill_s", "storage", "scores", "seed"])
def test_cell_beyond_the_paper_is_refused_the_same(tmp_path, name):
    found = made_beyond("best", 1, 50.0)
    found.coresets[0][name] = "many"
    write_cell(found.cell.path(tmp_path, Scope("cifar10")), found)
    ends("reproduce", "beyond", "--out", tmp_path, "--list", code=2)


@pytest.mark.parametrize(
    "distances",
    [3, {}, {"1": 3}, {"a": {}}, {"1": {"random": {"forward": 1.0}}}, {"9" * 400: {}}],
    ids=str,
)
def test_trials_that_were_not_measured_so_are_refused(tmp_path, distances):
    trials = [{**exact_trial(), "seed": 0, "distances": distances}]
    content = {"format": 1, "problem": "mean", "trials": trials}
    write_json(tmp_path / "exact" / "mean.json", content)
    ends("reproduce", "exact", "--out", tmp_path, "--list", code=2)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "{}",
        '{"seconds": [], "begun": 0}',
        '{"seconds": 0, "begun": 0, "spans": [[1]]}',
        "[" * 100_000,
    ],
)
def test_time_that_is_none_is_refused(world, tmp_path, text):
    (tmp_path / "npz").mkdir()
    (tmp_path / "npz" / "experts-1-epochs-seed0.seconds.json").write_text(text)
    words = ["--data", f"npz:{world / 'small' / 'data.npz'}", "--cells", "fbpc/1", "--work"]
    words += [tmp_path, "--epochs", "1", "--num", "1", "--out", tmp_path / "out", "--quiet"]
    ends("reproduce", "table1", *words, code=2)


# What follows promises far more than it holds, or unpacks to far more than it takes.


def npz_with(path, name, header, number):
    """An npz file with one array of zeros after a header of our own."""
    archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        member.write(npy_header(header))
        for _ in range(number >> 20):
            member.write(bytes(1 << 20))
    return path


def npy_header(shape, kind="|u1"):
    text = str({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def test_zip_bomb_is_refused(world, tmp_path):
    size = 1 << 30
    path = npz_with(tmp_path / "a.npz", "images", (size >> 6, 8, 8), size)
    assert path.stat().st_size < 1 << 23
    ends("predict", world / "posterior.safetensors", path, code=2)


def test_pickle_in_a_zip_bomb_is_refused(world, tmp_path):
    torch.save(torch.zeros(1 << 21, dtype=torch.uint8), tmp_path / "images_best.pt")
    torch.save(torch.arange(3), tmp_path / "labels_best.pt")
    with zipfile.ZipFile(tmp_path / "images_best.pt") as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    inside = next(name for name in members if name.endswith("data.pkl"))
    large = members[inside].replace(struct.pack("<i", 1 << 21), struct.pack("<i", 1 << 29))
    assert large != members[inside]
    with zipfile.ZipFile(
        tmp_path / "images_best.pt", "w", zipfile.ZIP_DEFLATED, False, 1
    ) as archive:
        for name, content in {**members, inside: large}.items():
            with archive.open(name, "w") as member:
                for _ in range(1 << 8 if len(content) == 1 << 21 else 1):
                    member.write(content)
    data = ["--data", f"npz:{world / 'small' / 'data.npz'}", "--net", NET]
    ends("evaluate", tmp_path, *data, code=2)


def test_gzip_bomb_is_refused(tmp_path):
    make_mnist(tmp_path / "mnist", zipped=True)
    with gzip.open(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", "wb", 1) as file:
        file.write(bytes((0, 0, 8, 3)) + struct.pack(">3I", 1 << 20, 22, 22))
        for _ in range(22 * 22):
            file.write(bytes(1 << 20))
    ends("info", f"mnist:{tmp_path / 'mnist'}", code=2)


def test_npz_that_promises_much_is_refused(world, tmp_path):
    path = npz_with(tmp_path / "a.npz", "images", (HUGE, 8, 8), 0)
    ends("predict", world / "posterior.safetensors", path, code=2)


def test_npy_that_promises_much_is_refused(world, tmp_path):
    (tmp_path / "labels.npy").write_bytes(npy_header((HUGE,)))
    words = ["--data", f"npz:{world / 'small' / 'data.npz'}", "--corruptions", "fog"]
    ends("evaluate", world / "posterior.safetensors", *words, "--corruptions-dir", tmp_path, code=2)


@pytest.mark.parametrize("kind", ["coreset", "posterior"])
@pytest.mark.parametrize("offsets", ["as promised", "as there are"])
def test_safetensors_that_promise_much_are_refused(world, tmp_path, kind, offsets):
    header, _, body = parts(world / f"{kind}.safetensors")
    name = next(name for name in header if name != "__metadata__")
    header[name]["shape"] = [HUGE, *header[name]["shape"][1:]]
    if offsets == "as promised":
        header[name]["data_offsets"][1] = HUGE * 4
    (tmp_path / "a.safetensors").write_bytes(safetensors(header, body))
    ends("info", tmp_path / "a.safetensors", code=2)


def test_safetensors_with_a_long_header_are_refused(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(HUGE.to_bytes(8, "little") + b"{}")
    ends("info", tmp_path / "a.safetensors", code=2)


def test_idx_that_promises_much_is_refused(tmp_path):
    make_mnist(tmp_path / "mnist")
    header = bytes((0, 0, 8, 3)) + struct.pack(">3I", 10**4, 10**4, 10**4)
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(header)
    ends("info", f"mnist:{tmp_path / 'mnist'}", code=2)


def png(width, height):
    """A PNG file with one row of its pixels."""

    def chunk(kind, content):
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    head = chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0))
    row = chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + head + row + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [20_000, 10**6, 2**31 - 1])
def test_png_that_promises_much_is_refused(world, tmp_path, side):
    make_folder(tmp_path / "data")
    (tmp_path / "data" / "train" / "cat" / "more.png").write_bytes(png(side, side))
    ends("info", f"folder:{tmp_path / 'data'}", "--image-size", "8", code=2)
    path = tmp_path / "data" / "train" / "cat" / "more.png"
    ends("predict", world / "posterior.safetensors", path, code=2)


def test_pickle_that_doubles_its_bytes_is_refused(tmp_path):
    """Bytes written in hexadecimal, and those again, and so on: 28 times is 1 GiB."""
    make_cifar_python(tmp_path / "cifar", 10)
    first = b"X\x04\x00\x00\x00abcdX\x06\x00\x00\x00latin1\x86R"
    again = b"X\x03\x00\x00\x00hex\x86R"
    content = b"\x80\x02" + 29 * b"c_codecs\nencode\n" + first + 28 * again + b"."
    (tmp_path / "cifar" / "data_batch_1").write_bytes(content)
    with small_cifar():
        ends("info", f"cifar10:{tmp_path / 'cifar'}", code=2)


def test_yaml_that_multiplies_itself_is_refused(tmp_path):
    lines = ["a: &a [1,1,1,1,1,1,1,1,1]"]
    lines += [f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in pairwise("abcdefghij")]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    ends("distill", "--config", tmp_path / "a.yaml", "--print-config", code=2)
    ends("distill", "--recipe", tmp_path / "a.yaml", "--data", "digits", "--print-config", code=2)


def tar_of(kind):
    """A tar archive in CIFAR's name: whole, cut short, or with members that are not to be taken."""
    member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    if kind == "outside":
        member.name = "../../outside"
    elif kind == "link":
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    elif kind == "huge":
        member.size = HUGE
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        archive.addfile(member)
    content = stream.getvalue()
    return content[: len(content) // 2] if kind == "cut" else content


@pytest.mark.parametrize("kind", ["whole", "cut", "outside", "link", "huge"])
def test_tar_archives_are_not_opened(tmp_path, kind):
    """CIFAR is read unpacked: an archive, or a folder that holds one, is refused as it is."""
    folder = tmp_path / "cifar"
    folder.mkdir()
    (folder / "cifar-10-binary.tar.gz").write_bytes(tar_of(kind))
    for path in (folder, folder / "cifar-10-binary.tar.gz"):
        ends("info", f"cifar10:{path}", code=2)
    assert [path.name for path in tmp_path.rglob("*")] == ["cifar", "cifar-10-binary.tar.gz"]

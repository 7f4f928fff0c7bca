"""Damage to files, drawn at random: of their bytes, and of what they say in their own format."""

import gzip
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import yaml

EDGES = [0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1]
TEXTS = ["", "x" * 5000, "\x1b[31m", "\u202e", "nan", "1e999", "<b>", "../../etc", "a\0b", "\ud800"]
TEXTS += [
    "os:system",
    "convnet:width=0",
    "convnet:width=1000000000",
    "convnet:depth=99",
    "mosaic:0",
]
NUMBERS = [0, -1, 1, 2, 10**12, 2**63, -(2**63), 10**400, 0.5, 1e308, -1e-308, 1e-320]
LEAVES = [None, True, False, [], {}, [[]], float("nan"), float("inf"), *NUMBERS, *TEXTS]


def mutated(content: bytes, name: str, random: Random, others: list[bytes]) -> bytes:
    """The content of a file, damaged: half the time by its own format, if it has one.

    Args:
        content: what the file holds
        name: its name
        random: source of the damage
        others: what other files hold, to be put in its place
    """
    own = _mutator(name)
    for _ in range(20):
        if own is not None and random.random() < 0.6:
            try:
                changed = own(content, random)
            except (ArithmeticError, ValueError, zipfile.BadZipFile):  # long numbers, no zip
                continue
        else:
            changed = of_bytes(content, random, others)
        if changed != content:
            return changed
    return content + b"\0"


def _mutator(name: str) -> Callable[[bytes, Random], bytes] | None:
    for pattern, mutator in MUTATORS.items():
        if re.search(pattern, name):
            return mutator
    return None


def of_bytes(content: bytes, random: Random, others: list[bytes] = []) -> bytes:  # noqa: B006
    """Flipped bits, spans cut, repeated or put elsewhere, numbers at the edge of their range."""
    changed = bytearray(content)
    kind = random.choice(["flip", "flip", "set", "cut", "end", "insert", "repeat", "edge", "other"])
    if kind == "other":
        odd = [b"", b"\0" * 4096, b"{}", b"[]", b"null", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04"]
        return random.choice([*others, *odd])
    for _ in range(random.choice([1, 1, 1, 2, 8])):
        place, length = _place(len(changed), random), random.choice([1, 2, 4, 8, 64, 1000])
        if kind == "flip" and changed:
            changed[place] ^= 1 << random.randrange(8)
        elif kind == "set":
            changed[place : place + length] = random.randbytes(length)
        elif kind == "cut":
            del changed[place : place + length]
        elif kind == "end":
            del changed[place:]
        elif kind == "insert":
            changed[place:place] = random.randbytes(length)
        elif kind == "repeat":
            changed[place:place] = bytes(changed[place : place + length]) * random.choice([1, 50])
        elif kind == "edge":
            size, order = random.choice([1, 2, 4, 8]), random.choice(["little", "big"])
            value = random.choice(EDGES) % 256**size
            changed[place : place + size] = value.to_bytes(size, order)  # type: ignore[arg-type]
    return bytes(changed)


def _place(length: int, random: Random) -> int:
    """Headers and ends are where structure is: they are hit as often as the bulk."""
    near = min(length, 200)
    place = random.choice([random.randint(0, near), length - random.randint(1, near or 1)])
    return max(0, min(length - 1, random.choice([place, random.randint(0, length)])))


def of_value(value: Any, random: Random) -> Any:
    """The same with some of its values changed, renamed or taken away."""
    changed = json.loads(json.dumps(value))
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        places = list(_places(changed))
        if not places:
            return random.choice(LEAVES)
        holder, key = random.choice(places)
        kind = random.random()
        if kind < 0.15:
            del holder[key]
        elif kind < 0.25 and isinstance(holder, dict):
            holder[random.choice(TEXTS)] = holder.pop(key)
        elif kind < 0.35 and isinstance(holder[key], list):
            holder[key] = holder[key] * random.choice([2, 30]) or [1]
        elif kind < 0.5 and isinstance(holder[key], int | float):
            holder[key] = random.choice([-1, 2, 0.5, 1000]) * holder[key] + random.choice([0, 1])
        else:
            holder[key] = random.choice(LEAVES)
    return changed


def _places(value: Any) -> Any:
    """Where each value inside another is: its holder, and its name or number there."""
    for key in value if isinstance(value, dict) else range(min(len(value), 3)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def of_json(content: bytes, random: Random) -> bytes:
    if random.random() < 0.05:
        return b"[" * 100_000 + b"]" * 100_000
    return json.dumps(of_value(json.loads(content), random)).encode()


def of_json_lines(content: bytes, random: Random) -> bytes:
    lines = content.splitlines()
    place = random.randrange(len(lines))
    lines[place] = of_json(lines[place], random)
    return b"\n".join(lines) + b"\n"


def of_yaml(content: bytes, random: Random) -> bytes:
    kind = random.random()
    if kind < 0.15:
        odd = [
            "!!python/object/apply:os.system [ls]",
            "&a [*a, *a]",
            "2024-01-01",
            "0x" + "f" * 999,
        ]
        odd += ["!!binary aGVsbG8=", "{" * 2000, "? [1, 2]\n: 3", "<<: {a: 1}", "!!set {1, 2}", "~"]
        text = content.decode()
        key = random.choice(re.findall(r"(?m)^( *[\w]+):", text) or ["a"])
        return re.sub(rf"(?m)^{key}:.*$", f"{key}: {random.choice(odd)}", text).encode()
    value = of_value(yaml.safe_load(content), random)
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode()


def of_safetensors(content: bytes, random: Random) -> bytes:
    """Other values in the header or in our metadata; other numbers, types or shapes."""
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    kind, ours = random.random(), header.get("__metadata__", {})
    names = [name for name in header if name != "__metadata__"]
    if kind < 0.5 and "pseudocoreset" in ours:
        inner = of_value(json.loads(ours["pseudocoreset"]), random)
        ours["pseudocoreset"] = json.dumps(inner)
    elif kind < 0.65:
        header = of_value(header, random)
    elif kind < 0.85 and names:
        return _other_tensor(header, body, random.choice(names), random)
    else:
        body = of_bytes(body, random)
    return safetensors(header, body)


def _other_tensor(header: dict[str, Any], body: bytes, name: str, random: Random) -> bytes:
    """A whole file in which one tensor has another type or shape, or numbers that are none."""
    entry = header[name]
    start, end = entry["data_offsets"]
    width = {
        "F32": 4,
        "F16": 2,
        "F64": 8,
        "I64": 8,
        "I32": 4,
        "U8": 1,
        "I8": 1,
        "BOOL": 1,
        "BF16": 2,
    }
    kind = random.random()
    if kind < 0.4:
        numbers = np.frombuffer(body[start:end], np.uint8).copy()
        fill = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I64": np.int64}
        values = numbers.view(fill.get(entry["dtype"], np.uint8))
        if len(values):
            odd = [0, -1, 1e30, float("nan"), float("inf"), 7, 255]
            with np.errstate(all="ignore"):
                place = slice(None) if random.random() < 0.3 else random.randrange(len(values))
                values[place] = np.float64(random.choice(odd)).astype(values.dtype)
        body = body[:start] + numbers.tobytes() + body[end:]
    elif kind < 0.7:
        others = [t for t in width if (end - start) % width[t] == 0]
        entry["dtype"] = random.choice(others)
        entry["shape"] = [(end - start) // width[entry["dtype"]]]
    else:
        number = (end - start) // width.get(entry["dtype"], 1)
        shapes = [[number], [1, number], [number, 1], [number, 1, 1, 1], [1] * 30 + [number]]
        entry["shape"] = random.choice(shapes)
        if random.random() < 0.3 and end == len(body):
            body, entry["shape"], entry["data_offsets"] = body[:start], [0], [start, start]
    return safetensors(header, body)


def safetensors(header: Any, body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def of_zip(content: bytes, random: Random) -> bytes:
    """A whole archive in which one member is damaged, missing, renamed, there twice, or other."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = random.choice(list(members))
    kind = random.random()
    if kind < 0.1:
        del members[name]
    elif kind < 0.2:
        members[random.choice(["../x.npy", "", "x" * 300, name + "."])] = members.pop(name)
    elif kind < 0.6 and name.endswith(".npy"):
        members[name] = _npy(_other_array(np.load(io.BytesIO(members[name])), random))
    elif name.endswith(".npy"):
        members[name] = of_npy(members[name], random)
    else:
        members[name] = of_bytes(members[name], random)
    out = io.BytesIO()
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    with zipfile.ZipFile(out, "w", random.choice(methods)) as archive:
        for member, inside in members.items():
            archive.writestr(zipfile.ZipInfo(member), inside, random.choice(methods))
    return out.getvalue()


def _other_array(array: np.ndarray, random: Random) -> np.ndarray:
    kinds = ["f2", "f4", "f8", "i1", "i8", "u8", "U3", "S3", "c8", "?", "M8[s]", ">f4", "V4", "O"]
    kind = random.random()
    with np.errstate(all="ignore"):
        if kind < 0.4:
            return array.astype(random.choice(kinds[:-1])) if array.dtype.kind != "U" else array[:0]
        if kind < 0.6:
            return random.choice(
                [array[:0], array[:1], array.ravel(), array[None], array[..., None]]
            )
        if kind < 0.7:
            return np.asfortranarray(array)
        if kind < 0.75:
            return np.array(array.tolist(), dtype=object)
        odd = np.array([0, -1, 255, 1e9, float("nan")])
        return np.asarray(random.choice(list(odd)) * np.ones(array.shape)).astype(
            array.dtype if array.dtype.kind in "iuf" else "f4"
        )


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def of_npy(content: bytes, random: Random) -> bytes:
    """Another header, or another array."""
    if random.random() < 0.5:
        return _npy(_other_array(np.load(io.BytesIO(content)), random))
    length = int.from_bytes(content[8:10], "little")
    header, body = content[10 : 10 + length].decode("latin1"), content[10 + length :]
    shapes = ["(1000000000000,)", "(-1,)", "()", "(0,)", "(2**40,)", "(1, " * 500 + ")" * 500]
    shapes += ["(1.5,)", "(True, 4)", "(99999999999999999999,)", "'x'", "(10**6, 10**6)"]
    types = ["'|O'", "'<f8'", "'|u1'", "'<U99999999'", "[('a', '<f4')]", "'|V0'", "3", "'<U0'"]
    if random.random() < 0.6:
        header = re.sub(r"'shape': \([^)]*\)", f"'shape': {random.choice(shapes)}", header)
    else:
        header = re.sub(r"'descr': '[^']*'", f"'descr': {random.choice(types)}", header)
    return content[:8] + len(header).to_bytes(2, "little") + header.encode("latin1") + body


def of_gzip(content: bytes, random: Random) -> bytes:
    return gzip.compress(of_bytes(gzip.decompress(content), random), mtime=0)


def of_png(content: bytes, random: Random) -> bytes:
    """Chunks with other content and the checksum of it, lost, repeated, or put elsewhere."""
    chunks, place = [], 8
    while place + 8 <= len(content):
        length, kind = struct.unpack(">I4s", content[place : place + 8])
        chunks.append((kind, content[place + 8 : place + 8 + length]))
        place += 12 + length
    number = random.randrange(len(chunks))
    kind, inside = chunks[number]
    what = random.random()
    if what < 0.7:
        odd = [b"tEXt", b"zTXt", b"iCCP", b"tRNS", b"PLTE", b"acTL", b"gAMA", b"eXIf"]
        kind = kind if random.random() < 0.8 else random.choice(odd)
        chunks[number] = (kind, of_bytes(inside, random))
    elif what < 0.8:
        del chunks[number]
    elif what < 0.9:
        chunks.insert(random.randrange(len(chunks)), chunks[number])
    else:
        chunks.insert(1, (b"zTXt", b"a\0\0" + zlib.compress(b"\0" * 10**7)))
    return content[:8] + b"".join(
        struct.pack(">I", len(i)) + k + i + struct.pack(">I", zlib.crc32(k + i)) for k, i in chunks
    )


def of_text(content: bytes, random: Random) -> bytes:
    """Other words in the place of some; lines lost, repeated or put elsewhere."""
    lines = content.decode("utf-8", "replace").split("\n")
    odd = ["", '"', "'", "nan", "1e400", "-", "é", "\x1b[31m", ";", "\t", ",", "x" * 200_000, "1_0"]
    for _ in range(random.choice([1, 1, 2, 5])):
        place = random.randrange(len(lines))
        kind = random.random()
        if kind < 0.6:
            words = re.split(r"([,;\t ])", lines[place])
            words[random.randrange(len(words))] = random.choice(odd)
            lines[place] = "".join(words)
        elif kind < 0.75 and len(lines) > 1:
            del lines[place]
        elif kind < 0.9:
            lines.insert(place, random.choice(lines))
        else:
            random.shuffle(lines)
    return "\n".join(lines).encode("utf-8", "replace")


MUTATORS: dict[str, Callable[[bytes, Random], bytes]] = {
    r"\.json$": of_json,
    r"\.jsonl$": of_json_lines,
    r"\.yaml$": of_yaml,
    r"\.safetensors$": of_safetensors,
    r"\.(npz|pt)$": of_zip,
    r"\.npy$": of_npy,
    r"\.gz$": of_gzip,
    r"\.png$": of_png,
    r"\.(csv|txt)$": of_text,
}

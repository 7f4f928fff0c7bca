import csv
import hashlib
import io
import json
import tempfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from make_data import refused, spec_refused

from pseudocoreset.data import Column, Scaling, encode_rows, from_arrays, load_data
from pseudocoreset.data.dataset import check_task
from pseudocoreset.errors import UserError

ROWS = 40
HEADER = ["age", "town", "weight", "sort"]


def made_rows(number=ROWS):
    """An age, a town, a weight, a sort; no row is twice."""
    towns, sorts = ("Bonn", "Aix", "Cham"), ("yes", "no")
    return [[str(20 + n), towns[n % 3], f"{n * 1.5 + 0.25}", sorts[n % 2]] for n in range(number)]


def text_of(rows, header=HEADER, delimiter=","):
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows([header, *rows])
    return stream.getvalue()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.csv"


def load(path, text=None, **options):
    if text is not None:
        path.write_text(text, encoding="utf-8")
    return load_data(f"table:{path}", **options)


def by_row(data):
    """Inputs and target of every row → its split."""
    return {
        (*inputs, *np.atleast_1d(target)): part
        for part, split in (("train", data.train), ("test", data.test))
        for inputs, target in zip(split.inputs.tolist(), split.targets.tolist(), strict=True)
    }


def test_table_encodes_numbers_and_categories(path):
    data = load(path, text_of(made_rows()))
    assert (data.name, data.task) == ("table:people", "classification")
    assert data.class_names == ("no", "yes")
    assert data.columns == (
        Column("age", "number"),
        Column("town", "category", ("Aix", "Bonn", "Cham")),
        Column("weight", "number"),
    )
    expected = {
        (20.0 + n, *(float(n % 3 == place) for place in (1, 0, 2)), n * 1.5 + 0.25, 1 - n % 2)
        for n in range(ROWS)
    }
    assert set(by_row(data)) == expected
    assert data.train.inputs.dtype == torch.float32
    assert data.train.targets.dtype == torch.int64
    assert data.scaling == Scaling.measured(data.train.inputs)
    assert not data.mirror


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_table_of_every_delimiter_gives_the_same(delimiter, ending, mark, path):
    expected = load(path, text_of(made_rows())).fingerprint
    text = text_of(made_rows(), delimiter=delimiter).replace("\r\n", "\n")
    path.write_bytes((mark + text.replace("\n", ending) + ending).encode())
    assert load(path).fingerprint == expected


def test_table_quotes_hold_delimiters(path):
    rows = [[*row[:1], f"{row[1]}, near; the {row[1]}", *row[2:]] for row in made_rows()]
    data = load(path, text_of(rows))
    assert data.columns[1].categories[0] == "Aix, near; the Aix"


@pytest.mark.parametrize(
    ("values", "task", "names"),
    [
        (("yes", "no"), "classification", ("no", "yes")),
        (("10", "9"), "classification", ("9", "10")),  # in the order of numbers
        (("01", "2"), "classification", ("1", "2")),
        (("1.5", "2"), "regression", ()),
        (("1.5", "no"), "classification", ("1.5", "no")),
    ],
)
def test_table_target_decides_the_task(values, task, names, path):
    rows = [[*row[:3], values[n % 2]] for n, row in enumerate(made_rows())]
    data = load(path, text_of(rows))
    assert (data.task, data.class_names) == (task, names)


def test_table_task_can_be_given(path):
    rows = [[*row[:3], str(n % 2)] for n, row in enumerate(made_rows())]
    data = load(path, text_of(rows), task="regression")
    assert (data.task, data.train.targets.dtype) == ("regression", torch.float32)
    assert set(data.train.targets.flatten().tolist()) == {0.0, 1.0}
    rows = [[*row[:3], ("0.5", "1.5")[n % 2]] for n, row in enumerate(made_rows())]
    assert load(path, text_of(rows), task="classification").class_names == ("0.5", "1.5")
    refused("task", load, path, text_of(made_rows()), task="regression", naming="'yes'")
    refused("task", check_task, "ranking", naming="regression")


def test_table_target_can_be_any_column(path):
    data = load(path, text_of(made_rows()), target="weight")
    assert data.task == "regression"
    assert [column.name for column in data.columns] == ["age", "town", "sort"]
    assert data.shape == {"input_shape": (6,), "outputs": 1}
    refused("target", load, path, target="wieght", naming="weight")
    refused("target", load, path, target="zzz", naming="town")


@pytest.mark.parametrize("missing", ["", "  ", "NA", "nan", "NaN", "?"])
@pytest.mark.parametrize("column", range(4))
def test_table_missing_value_is_refused_with_row_and_column(missing, column, path):
    rows = made_rows()
    rows[6][column] = missing
    message = refused("data", load, path, text_of(rows), naming=path)
    assert "row 7 (line 8)" in message
    assert repr(HEADER[column]) in message


BAD = {
    "empty": ("", ""),
    "no header": ("\n\n", ""),
    "header alone": ("a,b\n", ""),
    "one column": ("a\n1\n2\n", ""),
    "column without a name": (",a,b\n0,1,2\n1,2,3\n", "column 1"),
    "two columns of one name": ("a,a,b\n1,2,3\n4,5,6\n", "'a'"),
    "too few values": ("a,b\n1,2\n3\n", "line 3"),
    "too many values": ("a,b\n1,2\n3,4,5\n", "line 3"),
    "open quote": ('a,b\n1,2\n"3,4\n', ""),
    "too large": ("a,b\n1,x\n1e39,y\n", "row 2 (line 3), column 'a'"),
    "infinite": ("a,b\n1,x\n-inf,y\n", "row 2 (line 3), column 'a'"),
    "one class": ("a,b\n1,x\n2,x\n", ""),
    "class of one row": ("a,b\n1,x\n2,x\n3,y\n", "'y'"),
    "class of one row twice": ("a,b\n1,x\n2,x\n3,y\n3,y\n", "'y'"),
    "one row": ("a,b\n1,1.5\n", ""),
    "decimal comma": ("a;b\n1,5;x\n2,25;y\n3;x\n4;y\n", "row 1 (line 2), column 'a': '1,5'"),
    "thousands": ('a,b\n"1,000.5",x\n2,y\n3,x\n4,y\n', "column 'a': '1,000.5'"),
    "one text among numbers": (
        "a,b\n" + "".join(f"{n if n != 7 else '7 kg'},{n % 2}\n" for n in range(40)),
        "row 8 (line 9), column 'a': '7 kg'",
    ),
    "names": ("a,b\n" + "".join(f"person {n},{n % 2}\n" for n in range(2000)), "'a'"),
}


@pytest.mark.parametrize(("text", "naming"), BAD.values(), ids=BAD.keys())
def test_table_that_does_not_fit_is_refused(text, naming, path):
    path.write_text(text)
    message = spec_refused(f"table:{path}", naming)
    assert str(path) in message


def test_texts_and_numbers_may_be_categories(path):
    path.write_text(
        "floor,b\n" + "".join(f"{'G' if n % 5 == 0 else n % 5},{n % 2}\n" for n in range(40))
    )
    assert load_data(f"table:{path}").columns[0].categories == ("1", "2", "3", "4", "G")
    path.write_text("pair,b\n" + "".join(f'"{n % 3},{n % 2}",{n % 2}\n' for n in range(40)))
    spec_refused(f"table:{path}", "with a comma")


def test_column_that_names_the_rows_is_told(path):
    path.write_text("who,a,b\n" + "".join(f"person {n},{n},{n % 2}\n" for n in range(30)))
    with pytest.warns(RuntimeWarning, match="column 'who' has 30 different texts in 30 rows"):
        assert load_data(f"table:{path}").input_shape == (31,)


@pytest.mark.parametrize(("head", "told"), [("0.5,-1,y", True), ("2019,2020,y", False)])
def test_table_without_a_header_is_told(path, head, told):
    path.write_text(f"{head}\n" + "".join(f"{n}.25,{n / 7},{'xy'[n % 2]}\n" for n in range(30)))
    expected = pytest.warns(RuntimeWarning, match="add a header") if told else nullcontext()
    with expected:
        assert load_data(f"table:{path}").input_shape == (2,)


def test_table_that_is_no_text_is_refused(path):
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    spec_refused(f"table:{path}", path)


WHOLE = text_of(made_rows()).encode()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_table_damaged_is_refused_or_whole_numbers(data):
    damaged = bytearray(WHOLE[: data.draw(st.integers(0, len(WHOLE)))])
    for place in data.draw(st.lists(st.integers(0, max(len(damaged) - 1, 0)), max_size=3)):
        if damaged:
            damaged[place] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_bytes(damaged)
        try:
            loaded = load_data(f"table:{path}")
        except UserError:
            spec_refused(f"table:{path}")
            return
    for split in (loaded.train, loaded.test):
        assert len(split) > 0
        assert split.inputs.dtype == torch.float32
        assert split.inputs.isfinite().all()
        assert len(split.inputs) == len(split.targets)


# The split by content.


def share(row):
    """The digest of a row as a number in [0, 1): numbers as repr(float), texts as they are."""

    def canonical(value):
        try:
            return repr(float(value))
        except ValueError:
            return value

    content = repr(tuple(canonical(value) for value in row)).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=16).digest()) / 2**128


def split_oracle(rows, grouped):
    """The rows for testing, by the rule."""
    groups = {}
    for row in rows:
        groups.setdefault(row[-1] if grouped else "all", set()).add(tuple(row))
    tested = set()
    for members in groups.values():
        low = {row for row in members if share(row) < 0.2} or {min(members, key=share)}
        tested |= low - {max(members, key=share)} if low == members else low
    return tested


def rows_in_test(data):
    """The ages of the rows for testing: each row has its own."""
    return {str(round(row[0])) for row in data.test.inputs.tolist()}


@settings(max_examples=40, deadline=None)
@given(
    chosen=st.sets(st.integers(0, 59), min_size=8, max_size=50),
    changed=st.integers(0, 59),
    target=st.sampled_from(["sort", "weight"]),
    data=st.data(),
)
def test_table_split_moves_no_row_when_one_is_added_or_removed(chosen, changed, target, data):
    rows = made_rows(60)
    if target == "weight":
        rows = [[*row[:2], row[3], row[2]] for row in rows]
    header = ["age", "town", "sort", "weight"] if target == "weight" else HEADER
    chosen |= {0, 1, 2, 3}
    stays = {4, *chosen} - ({changed} if changed > 3 else set())
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for members in (chosen | {changed}, stays):
            members = data.draw(st.permutations(sorted(members)))
            taken = [rows[n] for n in members]
            loaded = load(Path(folder) / "people.csv", text_of(taken, header))
            tested = rows_in_test(loaded)
            oracle = split_oracle(taken, grouped=target == "sort")
            assert tested == {row[0] for row in oracle}
            assert len(loaded.train) + len(loaded.test) == len(taken)
            forced = {row[0] for row in taken if (share(row) < 0.2) != (tuple(row) in oracle)}
            found.append((tested, forced, {row[0] for row in taken}))
    (before, forced, there), (after, also_forced, remaining) = found
    for age in (there & remaining) - forced - also_forced:
        assert (age in before) == (age in after)


def test_table_split_keeps_equal_rows_together_however_numbers_are_written(path):
    rows = made_rows()
    others = [[f"{row[0]}.0", row[1], f"{float(row[2]):e}", row[3]] for row in rows]
    data = load(path, text_of([*rows, *others]))
    assert set(by_row(data)) == set(by_row(load(path, text_of(rows))))
    for split in (data.train, data.test):
        _, counts = split.inputs.unique(dim=0, return_counts=True)
        assert (counts == 2).all()


def test_table_split_is_that_of_the_same_arrays(path):
    numbers = np.random.default_rng(0).normal(size=(50, 3)).round(3)
    values = [*numbers[:, :2].tolist()], numbers[:, 2].tolist()
    rows = [[repr(float(v)) for v in row] for row in numbers]
    table = load(path, text_of(rows, ["x0", "x1", "y"]))
    arrays = from_arrays(*values)
    assert (table.train_digest, table.test_digest) == (arrays.train_digest, arrays.test_digest)
    assert table.columns == arrays.columns


# New rows.


def test_encode_rows_gives_the_inputs_of_the_same_rows(path):
    data = load(path, text_of(made_rows()))
    rows = made_rows()
    without = [[row[2], row[0], row[1]] for row in rows]  # no target, another order
    new = path.with_name("new.csv")
    new.write_text(text_of(without, ["weight", "age", "town"], ";"))
    found = encode_rows(data.columns, new)
    assert found.dtype == np.float32
    known = {key[:-1] for key in by_row(data)}
    assert {tuple(row) for row in found.tolist()} == known
    records = [dict(zip(HEADER, row, strict=True)) for row in rows]
    assert np.array_equal(encode_rows(data.columns, records), found)
    assert np.array_equal(encode_rows(data.columns, str(new)), found)
    assert np.array_equal(
        encode_rows(data.columns, [[int(row[0]), row[1], float(row[2])] for row in rows]), found
    )


def test_encode_rows_takes_arrays_of_numbers():
    columns = (Column("x0", "number"), Column("x1", "number"))
    numbers = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    assert np.array_equal(encode_rows(columns, numbers), numbers)
    assert np.array_equal(encode_rows(columns, torch.from_numpy(numbers)), numbers)


@pytest.mark.parametrize(
    ("rows", "naming"),
    [
        ([{"age": 3, "town": "Aix"}], "'weight'"),
        ([{"age": 3, "town": "Rome", "weight": 2}], "'Rome'"),
        ([{"age": 3, "town": None, "weight": 2}], "'town'"),
        ([{"age": float("nan"), "town": "Aix", "weight": 2}], "'age'"),
        ([{"age": "old", "town": "Aix", "weight": 2}], "'old'"),
        ([{"age": 1e39, "town": "Aix", "weight": 2}], "'age'"),
        ([[3, "Aix"]], "row 1"),
        (["abc"], "row 1"),
        ([], "rows"),
        ("nowhere.csv", "nowhere.csv"),
    ],
)
def test_encode_rows_refuses_what_it_does_not_know(rows, naming, path):
    columns = load(path, text_of(made_rows())).columns
    refused("rows", encode_rows, columns, rows, naming=naming)


def test_encode_rows_names_a_missing_column_of_a_file(path):
    columns = load(path, text_of(made_rows())).columns
    path.write_text(text_of([["3", "Aix"]], ["age", "town"]))
    refused("rows", encode_rows, columns, path, naming="'weight'")


AGE = Column("age", "number")
TOWN = Column("town", "category", ("Aix", "Bonn"))


def test_column_comes_back_from_json():
    for column, width in ((AGE, 1), (TOWN, 2)):
        assert Column.from_json(json.loads(json.dumps(column.as_json()))) == column
        assert column.width == width


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        AGE.as_json() | {"more": 1},
        AGE.as_json() | {"name": 3},
        AGE.as_json() | {"kind": "text"},
        AGE.as_json() | {"kind": []},
        AGE.as_json() | {"categories": ["a"]},
        TOWN.as_json() | {"categories": []},
        TOWN.as_json() | {"categories": [1]},
        TOWN.as_json() | {"categories": "ab"},
    ],
)
def test_column_of_other_json_is_refused(content):
    with pytest.raises(ValueError):
        Column.from_json(content)


# The tables that come with the package.


def test_diabetes_never_changes():
    data = load_data("diabetes")
    assert (data.name, data.task, data.class_names) == ("diabetes", "regression", ())
    assert [column.name for column in data.columns] == [
        *("age", "sex", "bmi", "bp"),
        *(f"s{n}" for n in range(1, 7)),
    ]
    assert (len(data.train), len(data.test)) == (343, 99)
    assert data.train_digest == "ae04094fce7aadba555b8853d3956444"
    assert data.test_digest == "b124d233cbb1271b7dbca125ebb778c5"
    assert data.fingerprint == "deb890b70d21388661866a9385804ac5"


def test_breast_cancer_never_changes():
    data = load_data("breast-cancer")
    assert (data.name, data.task) == ("breast-cancer", "classification")
    assert data.class_names == ("benign", "malignant")
    counts = sum(torch.bincount(split.targets) for split in (data.train, data.test))
    assert counts.tolist() == [357, 212]
    assert data.input_shape == (30,)
    assert data.train_digest == "1fae6b758dcbb9cdded376bc069f654e"
    assert data.test_digest == "2b7122337a0ee7eebc8b0552227d87a3"
    assert data.fingerprint == "ef52e6e3ddaeebd26e5314c4b67ffd06"


@pytest.mark.parametrize("name", ["diabetes", "breast-cancer"])
def test_embedded_tables_are_those_of_scikit_learn(name):
    datasets = pytest.importorskip("sklearn.datasets")
    if name == "diabetes":
        theirs = datasets.load_diabetes(scaled=False)
        target = theirs.target
    else:
        theirs = datasets.load_breast_cancer()
        target = 1 - theirs.target  # malignant is their first class and our last
    expected = sorted(
        (*map(float, row.astype(np.float32)), float(value))
        for row, value in zip(theirs.data, target, strict=True)
    )
    data = load_data(name)
    assert sorted(by_row(data)) == expected
    assert [column.name for column in data.columns] == list(theirs.feature_names)


def test_table_warns_where_the_task_is_in_doubt(tmp_path):
    rows = [f"{n},{n % 2}.0" for n in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows]))
    with pytest.warns(RuntimeWarning, match="'b' has 2 different numbers in decimals"):
        load_data(f"table:{tmp_path / 't.csv'}")
    data = load_data(f"table:{tmp_path / 't.csv'}", task="classification")
    assert data.class_names == ("0.0", "1.0")
    ages = [f"{n},{n % 30}" for n in range(120)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *ages]))
    with pytest.warns(RuntimeWarning, match="30 different whole numbers"):
        load_data(f"table:{tmp_path / 't.csv'}")

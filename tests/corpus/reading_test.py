"""Every format gives the same documents, and bad records are named."""

import bz2
import csv
import datetime
import decimal
import gzip
import io
import json
import re
from typing import Any

import pytest

from realm_jax.corpus.documents import BadRecord, Document
from realm_jax.corpus.input_files import find_files
from realm_jax.corpus.reading import DocumentReader

PAGES = (
  ("12", "AT&T", "AT&T is <big>.\n\nHistory.\nIt began in 1885."),
  ("7", 'The "Café"', "日本 is far."),
)


JSON_LINES = "\n".join(
  json.dumps({"id": id_, "revid": "1", "url": "", "title": title, "text": text})
  for id_, title, text in PAGES
).encode()


def found(path, **settings):
  (files,) = find_files([str(path)], **settings)
  return files


def records(path, content, **settings) -> list[Any]:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)
  return list(DocumentReader(found(path, **settings)))


EXPECTED = [Document(id=id_, title=title, text=text) for id_, title, text in PAGES]


@pytest.mark.parametrize(
  ("name", "content"),
  [
    ("a.jsonl", JSON_LINES),
    ("a.jsonl", b"\xef\xbb\xbf" + JSON_LINES),
    ("a.jsonl.gz", gzip.compress(JSON_LINES, mtime=0)),
    ("a.json.bz2", bz2.compress(JSON_LINES)),
  ],
)
def test_compressed_or_not_the_documents_are_the_same(tmp_path, name, content):
  assert records(tmp_path / name, content) == EXPECTED


@pytest.mark.parametrize(
  ("name", "content"), [("a.jsonl", b""), ("a.jsonl", b"\n \n"), ("a.csv", b"")]
)
def test_a_file_without_records_is_named(tmp_path, name, content):
  path = tmp_path / name
  assert records(path, content) == [BadRecord(kind="records_without_text", name=str(path))]


LONG = "The vote was delayed, and nobody knew why. " * 5


@pytest.mark.parametrize(
  ("name", "content", "title", "text"),
  [
    ("1.txt", "\ufeff\n  Vote delayed \n\nIt was.\nWhy?\n", "Vote delayed", "It was.\nWhy?"),
    ("moss.txt", "Moss grows.\n", "moss", "Moss grows."),
    ("notes.txt", f"{LONG}\nMore.", "notes", f"{LONG}\nMore."),
    ("notes.md", "## C# notes ##\nMore.", "C# notes", "More."),
    ("a.txt", "Notes on C#\nMore.", "Notes on C#", "More."),
    ("a.txt", "#1 in the charts\nMore.", "#1 in the charts", "More."),
    ("a.txt", "# Moss #\nMore.", "Moss", "More."),
    ("a.txt", "#\nMore.", "#", "More."),
  ],
)
def test_a_short_first_line_is_a_title_without_the_marks_of_a_heading(
  tmp_path, name, content, title, text
):
  expected = [Document(id=name, title=title, text=text)]
  assert records(tmp_path / name, content.encode()) == expected


ROWS = (
  ("id", "title", "text", "year", "price", "code"),
  ("n1", "A, b", 'Of "two"\nlines.', "1958", "12.50", "007"),
  ("", "", "Only text.", "", "", ""),
  ("n3", " ", "", "1", "2", "3"),
)


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_rows_of_a_table_are_documents_with_the_fields_of_its_header(tmp_path, delimiter):
  written = io.StringIO()
  csv.writer(written, delimiter=delimiter).writerows(ROWS)
  path = tmp_path / "a.csv"
  first, second, third = records(path, b"\xef\xbb\xbf" + written.getvalue().encode())
  assert first == Document(id="n1", title="A, b", text='Of "two"\nlines.')
  assert first.fields == {"year": 1958, "price": "12.50", "code": "007"}
  assert second == Document(id="a.csv:1", title="", text="Only text.") and not second.fields
  assert third == BadRecord(kind="records_without_text", name=f"{path}:row 2")


@pytest.mark.parametrize(
  ("content", "place", "reason"),
  [
    (b"query-id\tcorpus-id\tscore\n1\t2\t1\n", "", "text"),
    (b"id,text\n1,a, b\n", ":row 0", "3 cells"),
    (b"id,text\n1,caf\xe9\n", ":row 0", "UTF-8"),
    (b"id,te\xe9xt\n1,cafe\n", "", "UTF-8"),
    (b"id,text\n1,a\0b\n", ":row 0", "NUL"),
    (b"id,text,note,note\n1,a,b,c\n", "", "several columns 'note'"),
    (b'id,text\n1,"Hello, he said\n', ":row 0", "quotation mark on line 2 is not closed"),
  ],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path, content, place, reason):
  path = tmp_path / "a.tsv"
  (bad,) = records(path, content)
  assert bad.name == f"{path}{place}" and reason in bad.reason


@pytest.mark.parametrize("delimiter", [b",", b"\t", b";", b"|"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_one_bad_row_of_a_table_is_named_and_the_others_are_read(tmp_path, delimiter, end):
  rows = [b"%d,row %d" % (n, n) for n in range(2_000)]
  rows[1_000] = "1000,Müller".encode("cp1252")
  content = end.join([b"id,text", *rows]).replace(b",", delimiter)
  found = records(tmp_path / "a.csv", content)
  assert found.pop(1_000) == BadRecord(
    kind="broken_records", name=f"{tmp_path}/a.csv:row 1000", reason="not UTF-8; convert it"
  )
  assert [d.id for d in found] == [f"{n}" for n in range(2_000) if n != 1_000]


HEADERS = [  # a table, and its texts
  ("\ufeffsep=;\nid;text\n1;a\n", ["a"]),  # as Excel has it
  ("\n\r\n\nid,text\n1,a\n", ["a"]),
  ('id,text,"Date\n(UTC)"\n1,a,2020\n2,b,2021\n', ["a", "b"]),
  ('"a;b;c;d",text\nx,a\n', ["a"]),
  ('"last, first",text\n"Lee, Ann",a\n', ["a"]),
  ('id, text\n1, "a, b"\n2, c\n3,"d"\n', ["a, b", "c", "d"]),
  ('id,text,"note\n1,a,b\n', ["a"]),  # a mark that closes nowhere
  ('id,text\n1,"a \\"b\\", c"\n2,"d\\"\n', ['a "b", c', "d\\"]),  # as databases have it
  ('id,text\n1,"a \\"b\\",\nc"\n2,"C:\\x"\n', ['a "b",\nc', "C:\\x"]),
]


@pytest.mark.parametrize(("table", "texts"), HEADERS)
def test_a_header_tells_what_separates_cells_and_where_rows_begin(tmp_path, table, texts):
  found = records(tmp_path / "a.csv", table.encode())
  assert [record.text for record in found] == texts


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
  ("name", "lines"),
  [
    ("a.txt", ["Title", "Text."]),
    ("a.md", ["---", "title: Title", "---", "Text."]),
    ("a.jsonl", ["", '{"id": "a.jsonl", "title": "Title", "text": "Text."}', ""]),
    ("a.ndjson", ['\x1e{"id": "a.ndjson", "title": "Title", "text": "Text."}']),
    ("a.json", ["[", '{"id": "a.json", "title": "Title",', '"text": "Text."}]']),
    ("a.csv", ["id,title,text", "a.csv,Title,Text."]),
  ],
)
def test_lines_end_as_in_any_system(tmp_path, end, name, lines):
  expected = [Document(id=name, title="Title", text="Text.")]
  assert records(tmp_path / name, end.join([*lines, ""]).encode()) == expected


def test_a_record_without_text_is_named_with_what_it_has_and_a_blank_id_is_none(tmp_path):
  content = b'{"content": "a", "n": 1}\n{"id": "b", "text": " "}\n{"id": " ", "text": "c"}\n'
  first, second, third = records(tmp_path / "a.jsonl", content)
  assert (first.reason, second.reason) == ("no `text` among content, n", "")
  assert third.id == "a.jsonl:2"
  assert [r.text for r in records(tmp_path / "b.json", b'[{"text":"a"}] [{"text":"b"}]')] == [
    "a",
    "b",
  ]


QUOTED = [  # rows, what separates them, and the texts or what is wrong with them
  ('1,"a, b"\n2,"a\nb, c"\n3,c\n', ",", ["a, b", "a\nb, c", "c"]),
  ('1,"a ""b"" c"\n2,6" pipe\n3,c\n', ",", ['a "b" c', '6" pipe', "c"]),
  ('1,"a" b\n2,c\n', ",", ['"a" b', "c"]),
  ('1,"a\n2,b\n3,c\n', ",", ['"a', "b", "c"]),
  ('1,"a\n2,b\n3,"c" d\n4,"e"\n', ",", ['"a', "b", '"c" d', "e"]),
  ('1,"a, b\n2,b\n3,c\n', ",", ["line 2 is not closed", "b", "c"]),
  ('1;"a, b\n2;b\n', ";", ['"a, b', "b"]),
  ('1\t"a\n2\tb\n3\tc"\n4\td\n', "\t", ['"a', "b", 'c"', "d"]),
  ('1\t"a\nb"\n2\t"c""d"\n', "\t", ["a\nb", 'c"d']),
  ('1\t"a\n2\t"b\n3\tc\n', "\t", ['"a', '"b', "c"]),
  ('1\t"a"', "\t", ["a"]),
  ("1,a,,,\n\n2,b\n3,c,d\n", ",", ["a", "b", "3 cells for 2 columns"]),
]


@pytest.mark.parametrize(("rows", "delimiter", "expected"), QUOTED)
def test_a_quotation_mark_swallows_no_other_rows(tmp_path, rows, delimiter, expected):
  found = records(tmp_path / "a.csv", f"id{delimiter}text\n{rows}".encode())
  assert len(found) == len(expected)
  for record, text in zip(found, expected, strict=True):
    assert record.text == text if isinstance(record, Document) else text in record.reason


def test_a_quotation_that_is_never_closed_costs_one_row_of_many(tmp_path):
  rows = "".join(f"{n}\tpassage {n}\n" for n in range(3, 1_000))
  found = records(tmp_path / "a.tsv", f'id\ttext\n1\ta\n2\t"Hello, he said\n{rows}'.encode())
  assert [d.id for d in found] == [f"{n}" for n in range(1, 1_000)]
  assert found[1].text == '"Hello, he said'


COLUMNS = [  # cells of one column, and the values of the fields
  ("1.10,1.1", ["1.10", "1.1"]),
  ("01234,12345", ["01234", "12345"]),
  ("1,2.5,-3,0,-0.5", [1, 2.5, -3, 0, -0.5]),
  ("1,,3", [1, None, 3]),
  ("5,n/a", ["5", "n/a"]),
  ("12.50,9.99", ["12.50", "9.99"]),
  ("+5,1", ["+5", "1"]),
  ("1e5,1", ["1e5", "1"]),
  ("-0,1", ["-0", "1"]),
  ("1_000,1", ["1_000", "1"]),
  ("NaN,inf,Infinity,1", ["NaN", "inf", "Infinity", "1"]),
  ("true,false", ["true", "false"]),
  ("2024-01-05,2024", ["2024-01-05", "2024"]),
  ("9007199254740993,1", ["9007199254740993", "1"]),
  ("٣,1", ["٣", "1"]),
  ("0x10,1", ["0x10", "1"]),
]


@pytest.mark.parametrize(("cells", "expected"), COLUMNS)
def test_a_column_has_numbers_only_if_they_are_written_as_the_cells(tmp_path, cells, expected):
  rows = [f"{n};text;{cell};x" for n, cell in enumerate(cells.split(","))]
  found = records(tmp_path / "a.csv", "\n".join(["id; text; value;", *rows]).encode())
  values = [document.fields.get("value") for document in found]
  assert values == expected and [*map(type, values)] == [*map(type, expected)]
  assert all(document.fields.keys() <= {"value"} for document in found), "a column without a name"


JSON_VALUES = json.loads(f"[{','.join(JSON_LINES.decode().splitlines())}]")


@pytest.mark.parametrize(
  "content",
  [
    json.dumps(JSON_VALUES),
    json.dumps(JSON_VALUES, indent=2),
    json.dumps(JSON_VALUES, indent="\t").replace("[\n\t{", "[{"),
    "[\n" + ",\n".join(map(json.dumps, JSON_VALUES)) + "\n]\n",
    "\n".join(json.dumps(value, indent=1) for value in JSON_VALUES),
    "\ufeff" + json.dumps(JSON_VALUES, indent=2, ensure_ascii=False),
  ],
)
def test_arrays_and_objects_over_several_lines_are_read(tmp_path, content):
  assert records(tmp_path / "a.json", content.encode()) == EXPECTED
  assert records(tmp_path / "a.json.gz", gzip.compress(content.encode())) == EXPECTED


def test_a_broken_array_is_named_once_and_its_bad_items_each(tmp_path):
  content = json.dumps([{"text": "a"}] * 100, indent=2)
  (bad,) = records(tmp_path / "a.json", content[:-20].encode())
  assert bad.name == f"{tmp_path}/a.json" and bad.reason.startswith("not JSON: Expecting")
  first, second = records(tmp_path / "a.json", b'[\n{"text": "a"},\n5]')
  assert (first.id, second.name) == ("a.json:0", f"{tmp_path}/a.json:record 1")
  (bad,) = records(tmp_path / "a.json", b'{\n "text": "caf\xe9"\n}')
  assert bad.reason.endswith("not UTF-8; convert it")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize(
  ("name", "content"),
  [
    ("a.txt", "Café\n日本 is far.\n"),
    ("a.csv", 'id,title,text\na.txt,Café,"日本 is far."\n'),
    ("a.jsonl", '{"id": "a.txt", "title": "Café", "text": "日本 is far."}\n'),
    ("a.json", '[\n{"id": "a.txt", "title": "Café", "text": "日本 is far."}\n]'),
  ],
)
def test_text_in_utf_16_is_read_with_or_without_a_mark(tmp_path, encoding, name, content):
  expected = [Document(id="a.txt", title="Café", text="日本 is far.")]
  assert records(tmp_path / name, content.encode(encoding)) == expected
  zipped = gzip.compress(content.encode(encoding))
  assert records(tmp_path / f"{name}.gz", zipped)[0].text == "日本 is far."


@pytest.mark.parametrize(
  "content", [b"A title\n\0\0text", b"\0\0\0\0", "日本\n".encode("utf-16-le")]
)
def test_what_is_no_text_is_named(tmp_path, content):
  (bad,) = records(tmp_path / "a.txt", content)
  assert bad == BadRecord(kind="broken_records", name=f"{tmp_path}/a.txt")


@pytest.fixture
def parquet() -> Any:
  pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
  import pyarrow
  import pyarrow.parquet

  def write(path, columns):
    table = columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns)
    pyarrow.parquet.write_table(table, path)
    return list(DocumentReader(found(path)))

  write.array = pyarrow.array
  write.string = pyarrow.string()
  write.structs = pyarrow.StructArray.from_arrays
  return write


def test_parquet_needs_nothing_but_a_text(tmp_path, parquet):
  rows = parquet(tmp_path / "a.parquet", {"text": ["One.", None, "Two."], "id": [3, 4, 5]})
  assert rows == [
    Document(id="3", title="", text="One."),
    BadRecord(kind="records_without_text", name=f"{tmp_path / 'a.parquet'}:row 1"),
    Document(id="5", title="", text="Two."),
  ]
  (bad,) = parquet(tmp_path / "a.parquet", {"id": [1], "body": ["x"]})
  assert bad.reason == "has the columns id, body and no `text`"


def test_columns_of_parquet_are_fields_without_bytes(tmp_path, parquet):
  image = {"bytes": b"\x89P", "path": "a.png"}
  columns = {"image": [image], "images": [[image]], "raw": [[b"\x89"]], "a.b": [1], "a": [{"b": 2}]}
  columns |= {"bytes": [b"\xff"]}
  (row,) = parquet(tmp_path / "a.parquet", {"text": ["One."], **columns})
  path = {"path": "a.png"}
  assert row.fields == {"image": path, "images": [path], "a.b": 1, "a": {"b": 2}}


def test_values_of_parquet_are_those_of_json(tmp_path, parquet):
  values = [decimal.Decimal("9.99"), datetime.date(2020, 1, 2), datetime.timedelta(minutes=1)]
  expected = [9.99, "2020-01-02", 60.0]
  for value, there in [*zip(values, expected, strict=True), ([float("nan"), 1.0], [None, 1.0])]:
    columns = {"title": ["One.", "Two."], "value": [value, None], "spans": [[[0, 1]]] * 2}
    first, second = parquet(tmp_path / "a.parquet", columns)
    assert (first.fields["value"], second.fields.get("value")) == (there, None)
  columns = {"text": ["One."], "spans": [[[0, 3]]]}
  assert parquet(tmp_path / "a.parquet", columns)[0].spans == ((0, 3),)


@pytest.mark.parametrize("kind", ["timestamp", "zone", "date", "duration", "list", "struct"])
def test_a_time_that_python_does_not_have_spoils_one_row_of_parquet(tmp_path, parquet, kind):
  pyarrow = pytest.importorskip("pyarrow")
  seconds = pyarrow.timestamp("s")
  value, of_kind = {
    "timestamp": (10**15, seconds),
    "zone": (10**15, pyarrow.timestamp("s", "UTC")),
    "date": (-(10**6), pyarrow.date32()),
    "duration": (10**15, pyarrow.duration("s")),
    "list": ([0, 10**15], pyarrow.list_(seconds)),
    "struct": ({"t": 10**15}, pyarrow.struct({"t": seconds})),
  }[kind]
  columns = {"text": ["One.", "Two."], "t": pyarrow.array([None, value], of_kind)}
  first, bad = parquet(tmp_path / "a.parquet", columns)
  assert first == Document(id="a.parquet:0", title="", text="One.")
  assert bad == BadRecord(kind="broken_records", name=f"{tmp_path / 'a.parquet'}:row 1")
  assert "`t` has a value that Python cannot hold" in bad.reason


@pytest.mark.parametrize("column", ["id", "title", "text"])
@pytest.mark.parametrize("value", [["One."], {"a": "One."}])
def test_a_column_of_parquet_that_is_no_text_is_named(tmp_path, parquet, column, value):
  (bad,) = parquet(tmp_path / "a.parquet", {"text": ["One."], column: [value]})
  assert re.match(rf"has \w+<.*> in its column `{column}`", bad.reason)


def test_two_columns_of_one_name_are_named(tmp_path, parquet):
  pyarrow = pytest.importorskip("pyarrow")
  (bad,) = parquet(tmp_path / "a.parquet", pyarrow.table([["a"], ["b"]], names=["text", "text"]))
  assert bad.reason == "has several columns 'text'"


@pytest.mark.parametrize("kind", ["nested", "bytes", "text"])
def test_broken_utf8_anywhere_spoils_one_row_of_parquet(tmp_path, parquet, kind):
  broken = parquet.array([b"good", b"caf\xe9", b"fine"])
  columns = {"text": broken if kind == "bytes" else broken.view(parquet.string)}
  if kind == "nested":
    nested = parquet.structs([broken.view(parquet.string)], ["name"])
    columns = {"text": ["good", "cafe", "fine"], "place": nested}
  first, bad, last = parquet(tmp_path / "a.parquet", columns)
  assert (first.text, last.text) == ("good", "fine")
  assert bad == BadRecord(kind="broken_records", name=f"{tmp_path / 'a.parquet'}:row 1")


def test_damaged_parquet_is_named(tmp_path, parquet):
  path = tmp_path / "a.parquet"
  parquet(path, {"text": [f"text {n}" for n in range(5_000)]})
  content = bytearray(path.read_bytes())
  content[500:1_000] = bytes(500)
  for damaged in (content, content[:100]):
    *_, bad = records(path, damaged)
    assert bad.kind == "unreadable_files" and "cannot be read as Parquet" in bad.reason

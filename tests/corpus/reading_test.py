"""Every format gives the same documents, and bad records are named."""

import bz2
import csv
import gzip
import io
import json
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
    ("a.jsonl.gz", gzip.compress(JSON_LINES)),
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


def test_a_long_first_line_is_no_title_and_a_heading_loses_its_marks(tmp_path):
  paragraph = "The vote was delayed, and nobody knew why. " * 5
  assert records(tmp_path / "notes.md", f"{paragraph}\nMore.".encode()) == [
    Document(id="notes.md", title="notes", text=f"{paragraph}\nMore.")
  ]
  assert records(tmp_path / "notes.md", b"## C# notes ##\nMore.") == [
    Document(id="notes.md", title="C# notes", text="More.")
  ]


def test_text_files_begin_with_their_title(tmp_path):
  text = "\ufeff\n  Vote delayed \n\nThe vote was delayed.\nNobody knew why.\n".encode()
  assert records(tmp_path / "1.txt", text) == [
    Document(id="1.txt", title="Vote delayed", text="The vote was delayed.\nNobody knew why.")
  ]
  assert records(tmp_path / "1.txt", b"caf\xe9\n\xe9") == [
    BadRecord(kind="broken_records", name=str(tmp_path / "1.txt"))
  ]


def test_the_only_line_of_a_text_file_is_its_text(tmp_path):
  assert records(tmp_path / "moss.txt", b"Moss grows.\n") == [
    Document(id="moss.txt", title="moss", text="Moss grows.")
  ]


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
  assert first.fields == {"year": 1958, "price": 12.5, "code": "007"}
  assert second == Document(id="a.csv:1", title="", text="Only text.") and not second.fields
  assert third == BadRecord(kind="records_without_text", name=f"{path}:row 2")


@pytest.mark.parametrize(
  ("content", "place", "reason"),
  [
    (b"query-id\tcorpus-id\tscore\n1\t2\t1\n", "", "text"),
    (b"id,text\n1,a, b\n", ":row 0", "3 cells"),
    (b"id,text\n1,caf\xe9\n", "", "UTF-8"),
  ],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path, content, place, reason):
  path = tmp_path / "a.tsv"
  (bad,) = records(path, content)
  assert bad.name == f"{path}{place}" and reason in bad.reason


@pytest.fixture
def parquet():
  pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
  import pyarrow
  import pyarrow.parquet

  def write(path, columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return list(DocumentReader(found(path)))

  write.array = pyarrow.array
  write.string = pyarrow.string()
  return write


def test_parquet_needs_nothing_but_a_text(tmp_path, parquet):
  rows = parquet(tmp_path / "a.parquet", {"text": ["One.", None, "Two."], "id": [3, 4, 5]})
  assert rows == [
    Document(id="3", title="", text="One."),
    BadRecord(kind="records_without_text", name=f"{tmp_path / 'a.parquet'}:row 1"),
    Document(id="5", title="", text="Two."),
  ]
  with pytest.raises(ValueError, match=r"a\.parquet has the columns id, body and no `text`"):
    parquet(tmp_path / "a.parquet", {"id": [1], "body": ["x"]})


def test_other_columns_of_parquet_are_fields_except_bytes(tmp_path, parquet):
  columns = {"text": ["One.", "Two."], "year": [1958, None], "tags": [["a"], ["b"]]}
  rows = parquet(tmp_path / "a.parquet", {**columns, "image": [b"\xff", b"\xfe"]})
  assert [row.fields for row in rows] == [{"year": 1958, "tags": ["a"]}, {"tags": ["b"]}]


def test_broken_utf8_spoils_one_row_of_parquet(tmp_path, parquet):
  broken = parquet.array([b"good", b"caf\xe9", b"fine"]).view(parquet.string)
  first, bad, last = parquet(tmp_path / "a.parquet", {"text": broken})
  assert (first.text, last.text) == ("good", "fine")
  assert bad == BadRecord(kind="broken_records", name=f"{tmp_path / 'a.parquet'}:row 1")

import gzip
import json
from collections import Counter

import pytest

from realm_jax.corpus.documents import BadRecords, Document
from realm_jax.corpus.input_files import find_files
from realm_jax.corpus.reading import read_documents


def read(pattern):
  bad = BadRecords()
  (files,) = find_files([str(pattern)])
  return list(read_documents(files, bad=bad)), bad.counts


def test_files_are_read_in_sorted_order_plain_or_gzip(tmp_path):
  (tmp_path / "b.jsonl").write_text('{"id": 7, "title": "T", "text": " é. \\n"}\n\n')
  with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
    file.write('\n{"text": "first"}')
  found, counts = read(tmp_path / "*.jsonl*")
  assert found == [
    Document(id="a.jsonl.gz:1", title="", text="first"),
    Document(id="7", title="T", text="é."),
  ]
  assert counts == Counter()


def test_text_with_spans_keeps_its_white_space_because_offsets_count_it(tmp_path):
  record = {"id": "x", "text": " Oslo lies. ", "spans": [[1, 5]]}
  (tmp_path / "x.jsonl").write_text(json.dumps(record))
  ((document,), _) = read(tmp_path / "x.jsonl")
  assert document == Document(id="x", title="", text=" Oslo lies. ", spans=((1, 5),))
  (tmp_path / "x.jsonl").write_text(json.dumps({**record, "spans": []}))
  assert read(tmp_path / "x.jsonl")[0][0].spans == ()  # tagged, and nothing found


@pytest.mark.parametrize(
  "line",
  [
    b'{"text": "caf\xe9"}',  # Latin-1
    b'{"text": "a',
    b"[1, 2]",
    b'"text"',
    b'{"text": 5}',
    b'{"text": ["a"], "spans": []}',
    b'{"text": "a", "spans": [1]}',
    b'{"text": "a", "spans": [[0, "x"]]}',
    b'{"text": "half of a pair: \\ud83d"}',
    b'{"title": "\\ud83d", "text": "a"}',
  ],
)
def test_broken_records_are_passed_over_and_counted(tmp_path, line):
  (tmp_path / "x.jsonl").write_bytes(line + b'\n{"text": "good"}\n')
  found, counts = read(tmp_path / "x.jsonl")
  assert [document.text for document in found] == ["good"]
  assert counts == Counter(broken_records=1)


@pytest.mark.parametrize("text", [{}, {"text": None}, {"text": ""}, {"text": " \n\u3000"}])
@pytest.mark.parametrize("spans", [{}, {"spans": []}])
def test_records_without_text_are_counted(tmp_path, text, spans):
  (tmp_path / "x.jsonl").write_text(json.dumps({"title": "T", **text, **spans}))
  assert read(tmp_path / "x.jsonl") == ([], Counter(records_without_text=1))


def test_a_pattern_without_files_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match=r"no file matches '.*none\*'"):
    read(tmp_path / "none*")


@pytest.mark.parametrize("damage", ["cut", "changed", "no gzip"])
def test_a_damaged_gzip_file_is_named(tmp_path, damage):
  whole = gzip.compress(b'{"text": "a"}\n' * 1000)
  middle = len(whole) // 2
  damaged = {
    "cut": whole[:middle],
    "changed": whole[:10] + b"\xff" * 8 + whole[18:],
    "no gzip": b"{}",
  }
  (tmp_path / "x.jsonl.gz").write_bytes(damaged[damage])
  with pytest.raises(ValueError, match=r"x\.jsonl\.gz is truncated or damaged; download it"):
    read(tmp_path / "x.jsonl.gz")

import datetime
import decimal
import gzip
import json
import pathlib
import random
import re
import uuid
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from realm_jax.corpus.documents import BadRecords, Document, UidSet, json_values, make_record
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


def test_annotations_other_than_pairs_of_offsets_are_a_field(tmp_path):
  spans = [{"start": 0, "end": 4, "label": "PLACE"}]
  for text in ("Oslo lies.", ""):
    record = {"id": "x", "title": "Oslo", "text": text, "spans": spans}
    (tmp_path / "x.jsonl").write_text(json.dumps(record))
    ((document,), _) = read(tmp_path / "x.jsonl")
    assert document == Document(id="x", title="Oslo", text=text)
    assert document.fields == {"spans": spans}


@pytest.mark.parametrize("empty", [None, ""])
def test_an_empty_id_is_none(tmp_path, empty):
  lines = [json.dumps({"id": empty, "_id": empty, "text": "Oslo."})] * 2
  (tmp_path / "x.jsonl").write_text("\n".join(lines))
  documents, _ = read(tmp_path / "x.jsonl")
  assert len({document.id for document in documents} - {"None", ""}) == 2


BROKEN = {  # a line, and what its reason names
  b'{"text": "caf\xe9"}': "UTF-8",
  b'{"text": "a': "Unterminated",
  b"id,title,text": "'id,title,text' is not JSON",
  b"[1, 2]": "one JSON object a line",
  b"[": "one JSON object a line",
  b'"text"': "one JSON object a line",
  b"[" * 100_000: "nested too deep",
  b'{"text": "a", "id": 1, "text": "b"}': "has 'text' twice",
  b'{"text": "a", "of": {"n": 1, "n": 2}}': "has 'n' twice",
  b'{"text": 5}': "`text` is 5",
  b'{"text": ["a"], "spans": []}': r"`text` is \['a'\]",
  b'{"text": "a", "spans": [1]}': r"`spans` are \[1\]",
  b'{"text": "a", "spans": [[0, "x"]]}': "`spans`",
  b'{"text": "half of a pair: \\ud83d"}': "surrogate",
  b'{"title": "\\ud83d", "text": "a"}': "surrogate",
  b'{"id": "\\ud83d", "text": "a"}': "surrogate",
  b'{"text": "a", "author": "\\ud83d"}': "field 'author' has half of a surrogate",
  b'{"text": "a", "tags": [{"n": "\\udc00"}]}': "field 'tags' has half of a surrogate",
  b'{"text": "a", "\\ud83d": 1}': "has half of a surrogate",
  b'{"text": "a", "n": Infinity}': "field 'n' has inf",
  b'{"text": "a", "title": ["b"]}': r"`title` is \['b'\]",
  b'{"text": "a", "id": {"b": 1}}': r"`id` is \{'b': 1\}",
}


@pytest.mark.parametrize("line", BROKEN, ids=lambda line: str(line[:40]))
def test_broken_records_are_passed_over_and_counted_each_reason_once(tmp_path, line):
  (tmp_path / "x.jsonl").write_bytes(line + b'\n{"text": "good"}\n{\n{\n')
  bad = BadRecords()
  (files,) = find_files([str(tmp_path / "x.jsonl")])
  assert [document.text for document in read_documents(files, bad=bad)] == ["good"]
  assert bad.counts == Counter(broken_records=3)
  (report,) = bad.report()
  second = r"x\.jsonl:3 \('\{' is not JSON.*\), \S*x\.jsonl:4$"
  assert re.search(rf"x\.jsonl:1 \(.*{BROKEN[line]}.*\), \S*{second}", report)


def test_documents_with_the_id_of_an_earlier_one_are_counted_across_inputs(tmp_path):
  for name, ids in (("a", "pqp"), ("b", "xqqx")):
    lines = [json.dumps({"id": id, "text": name}) for id in ids]
    (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
  bad = BadRecords()
  found = find_files([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])
  assert sum(1 for files in found for _ in read_documents(files, bad=bad)) == 7
  (report,) = bad.report()
  assert report.endswith("'p', 'q', 'q', 'x'")
  bad.add_ids(["p"] * 100)
  assert bad.report()[0].endswith("and 84 more")


@pytest.mark.parametrize("text", [{}, {"text": None}, {"text": ""}, {"text": " \n\u3000"}])
@pytest.mark.parametrize("spans", [{}, {"spans": []}])
def test_records_without_text_are_counted(tmp_path, text, spans):
  (tmp_path / "x.jsonl").write_text(json.dumps({"title": " ", **text, **spans}))
  assert read(tmp_path / "x.jsonl") == ([], Counter(records_without_text=1))
  (tmp_path / "x.jsonl").write_text(json.dumps({"id": "x", "title": "T", **text, **spans}))
  assert read(tmp_path / "x.jsonl") == ([Document(id="x", title="T", text="")], Counter())


DAY = datetime.date(2021, 5, 1)
VALUES = [
  (True, True),
  (2**70, 2**70),
  (np.int8(3), 3),
  (np.bool_(False), False),
  (np.float32(0.5), 0.5),
  (np.longdouble(0.5), 0.5),
  (np.str_("a"), "a"),
  (decimal.Decimal("9.90"), 9.9),
  (decimal.Decimal("0.12345678901234567890"), "0.12345678901234567890"),
  (DAY, "2021-05-01"),
  (datetime.time(12, 30), "12:30:00"),
  (datetime.timedelta(minutes=1), 60.0),
  (np.datetime64("2021-05-01"), "2021-05-01"),
  (np.datetime64("2021-05-01T12:00", "ns"), "2021-05-01T12:00:00"),
  (np.datetime64("20000-01-01"), "20000-01-01"),
  (np.timedelta64(2, "s"), 2.0),
  (pd.Timestamp("2021-05-01"), "2021-05-01T00:00:00"),
  (pd.Timedelta("1min"), 60.0),
  (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
  (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
  (np.array(["2021-05-01", "NaT"], "datetime64[ns]"), ["2021-05-01T00:00:00", None]),
  (pd.Series(["a", None]), ["a", None]),
  ((1, (DAY,)), [1, ["2021-05-01"]]),
  ([1.5, float("nan"), pd.NA, pd.NaT], [1.5, None, None, None]),
  ({"a": np.float64("nan"), 2: [DAY]}, {"a": None, "2": ["2021-05-01"]}),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=str)
def test_values_of_any_library_are_those_of_json(value, expected):
  found = json_values({"f": value})["f"]
  assert found == expected and json.loads(json.dumps(found)) == found
  assert type(found) is type(expected)


@pytest.mark.parametrize(
  "value",
  [None, "", [], {}, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT")]
  + [np.timedelta64("NaT"), decimal.Decimal("NaN"), decimal.Decimal("sNaN"), ()],
  ids=repr,
)
@pytest.mark.parametrize("name", ["f", "title", "spans", "_id"])
def test_a_missing_value_is_no_field(value, name):
  document = make_record({"text": "An oak.", name: value}, default_id="x", name="record 0")
  # Of spans, an empty list says that the text was tagged and nothing found.
  spans = () if name == "spans" and isinstance(value, (list, tuple)) else None
  assert document == Document(id="x", title="", text="An oak.", spans=spans)
  assert getattr(document, "fields", None) == {}


@pytest.mark.parametrize(
  "value",
  [{1}, b"a", memoryview(b"a"), 1j, object(), float("inf"), np.float16("-inf"), [np.inf, DAY]]
  + [{(1,): 2}, 10**5000, [10**5000], decimal.Decimal("Infinity"), {"a": b"a"}],
  ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_refused(value):
  with pytest.raises(ValueError, match="field 'f' has .*, which JSON cannot hold"):
    json_values({"f": value})


@pytest.mark.parametrize(
  ("fields", "id", "there"),
  [
    ({"id": 1, "_id": 2}, "1", {"_id": 2}),
    ({"id": "", "_id": "b"}, "b", {}),
    ({"id": None, "_id": {"$oid": "5f1e"}}, "5f1e", {}),
    ({"id": "a", "_id": {"$oid": "5f1e"}}, "a", {"_id": {"$oid": "5f1e"}}),
    ({"_id": np.int64(7)}, "7", {}),
    ({"id": decimal.Decimal("1.10")}, "1.10", {}),
    ({"id": uuid.UUID(int=1)}, "00000000-0000-0000-0000-000000000001", {}),
    ({"id": pathlib.Path("a/b")}, "a/b", {}),
    ({"id": DAY}, "2021-05-01", {}),
  ],
)
def test_an_id_may_be_called_otherwise_and_be_a_number_or_a_date(fields, id, there):
  document = make_record({"text": "An oak.", **fields}, default_id="x", name="record 0")
  assert (document.id, document.fields) == (id, there)


@pytest.mark.parametrize(
  "value",
  [b"a", bytearray(b"a"), ["a"], {"a": 1}, {1}, object()],
  ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("name", ["id", "_id", "title", "text"])
def test_what_is_no_name_and_no_text_is_refused(name, value):
  bad = make_record({"text": "An oak.", name: value}, default_id="x", name="record 0")
  assert bad.kind == "broken_records" and f"`{name}` is " in bad.reason


@pytest.mark.parametrize("max_newest", [1000, 7, 1])
def test_every_uid_is_new_once(max_newest):
  draw = random.Random(0)
  uids, seen = UidSet(max_newest=max_newest), set()
  for _ in range(60):
    wanted = [draw.choice([draw.randrange(200), draw.randrange(1, 2**63)]) for _ in range(9)]
    expected = []
    for uid in wanted:
      expected.append(uid not in seen)
      seen.add(uid)
    assert uids.add(wanted) == expected

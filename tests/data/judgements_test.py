"""Files of judgements and queries as people write them."""

import gzip
import json

import pytest

from realm_jax.data.judgements import read_judgements, read_queries
from realm_jax.data.questions import read_questions

HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize(
  ("content", "expected"),
  [
    (f"{HEADER}1\tmy notes.txt\t1\n2\ta b\t0\n", {"1": {"my notes.txt": 1}, "2": {"a b": 0}}),
    ("1\tmy notes.txt\t1\n", {"1": {"my notes.txt": 1}}),
    ("1\t0\tmy notes.txt\t1\n", {"1": {"my notes.txt": 1}}),
    ("my query\ta\t1\n", {"my query": {"a": 1}}),
    ("1 0 a 1\n1  0   b\t2\n", {"1": {"a": 1, "b": 2}}),
    ("1 a 1\n", {"1": {"a": 1}}),
    (f"{HEADER}1\ta\t1\n".replace("\n", "\r\n"), {"1": {"a": 1}}),
    ("\ufeff1 0 a 1\n", {"1": {"a": 1}}),
    (f"\ufeff{HEADER}1\ta\t1", {"1": {"a": 1}}),
    ("\nqid docid Relevance\n1 a 1\n", {"1": {"a": 1}}),
    (
      "1\ta\u2028b\t1\n1\tc\u0085d\t1\n1\te\u00a0f\t2",
      {"1": {"a\u2028b": 1, "c\u0085d": 1, "e\u00a0f": 2}},
    ),
    ("1 0 e\u00a0f 2\n", {"1": {"e\u00a0f": 2}}),
    ("1\ta\t1.0\n1\tb\t-1\n", {"1": {"a": 1, "b": -1}}),
    ("1\ta\t1\n1\ta\t1\n", {"1": {"a": 1}}),
  ],
)
def test_judgements_are_read_as_they_are_meant(tmp_path, content, expected):
  encoded = content.encode()
  (tmp_path / "test.tsv").write_bytes(encoded)
  (tmp_path / "test.tsv.gz").write_bytes(gzip.compress(encoded))
  (tmp_path / "wide.tsv").write_bytes(content.removeprefix("\ufeff").encode("utf-16"))
  for name in ("test.tsv", "test.tsv.gz", "wide.tsv"):
    assert read_judgements(tmp_path / name) == expected


@pytest.mark.parametrize(
  ("content", "named"),
  [
    (b"1 0 my notes.txt 1\n", "line 1 .*5 columns.*tabs"),
    (b"1\ta\t0.5\n", "line 1 .*'0.5'"),
    (b"1\ta\t1\n1\tb\tscore\n", "line 2 .*'score'"),
    (b"1\ta\t1\n1\ta\t2\n", "line 2 grades"),
    (b"1\ta\t1\n1\tb\xff\t1\n", "line 2 is not UTF-8"),
    (HEADER.encode(), "no judgements"),
  ],
)
def test_what_is_no_judgement_is_named_with_its_line(tmp_path, content, named):
  (tmp_path / "test.tsv").write_bytes(content)
  with pytest.raises(ValueError, match=named):
    read_judgements(tmp_path / "test.tsv")


@pytest.mark.parametrize(
  ("lines", "expected"),
  [
    (['{"_id": 1, "text": "a\u2028b"}', '{"_id": 2, "text": "\u0085d"}'], ["a\u2028b", "\u0085d"]),
    (['\ufeff{"_id": "1", "text": "a"}\r', "", '{"_id": "2", "text": "b"}\r'], ["a", "b"]),
    (['{"_id": "2", "text": "b"}', *['{"_id": "1", "text": "a"}'] * 2], ["b", "a"]),
  ],
)
def test_queries_end_where_their_lines_do(tmp_path, lines, expected):
  content = "\n".join(lines).encode()
  (tmp_path / "queries.jsonl").write_bytes(content)
  (tmp_path / "queries.jsonl.gz").write_bytes(gzip.compress(content))
  for name in ("queries.jsonl", "queries.jsonl.gz"):
    queries = read_queries(tmp_path / name, {"1": {}, "2": {}})
    assert [query.text for query in queries] == expected


@pytest.mark.parametrize(
  ("record", "named"),
  [
    ({"_id": "1", "text": "other"}, "line 2 has another query with id '1'"),
    ({"_id": 1, "text": "other"}, "line 2 has another query with id '1'"),
    ({"_id": "2", "text": None}, "line 2 is not a query"),
    ({"_id": "2", "text": "cut \ud83d"}, "line 2 is not a query"),
    ({"id": "2", "text": "a"}, "line 2 is not a query"),
    (["2", "a"], "line 2 is not a query"),
  ],
)
def test_what_is_no_query_is_named_with_its_line(tmp_path, record, named):
  lines = [json.dumps(one) for one in ({"_id": "1", "text": "one"}, record)]
  (tmp_path / "queries.jsonl").write_text("\n".join(lines))
  with pytest.raises(ValueError, match=named):
    read_queries(tmp_path / "queries.jsonl", {"1": {}})


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_questions_may_begin_with_a_byte_order_mark(tmp_path, encoding):
  line = json.dumps({"question": "which\u2028tree", "answer": "oak"}, ensure_ascii=False)
  (tmp_path / "q.jsonl").write_text(f"{line}\r\n{line}\r\n", encoding=encoding, newline="")
  assert [q.text for q in read_questions(tmp_path / "q.jsonl")] == ["which\u2028tree"] * 2

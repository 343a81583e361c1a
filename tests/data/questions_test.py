"""Files of questions, judgements and queries as people write them."""

import gzip
import hashlib
import json
import math

import pytest

from realm_jax.data.question_batches import (
  masked_query_batches,
  masked_text_query,
  question_batches,
)
from realm_jax.data.question_sets import read_raw
from realm_jax.data.questions import (
  MANIFEST_FILE,
  Question,
  read_judgements,
  read_queries,
  read_questions,
)
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.json_lines import write_lines

PIECES = "the pound is currency of uk . zurich ##s euro ᄒ ##ᅡ ##ᆫ".split()
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *PIECES])
SIZES = {"tokenizer": TOKENIZER, "query_length": 12, "max_masks": 3}


def question(text, answer, **fields):
  start = text.encode().index(answer.encode())
  span = (start, start + len(answer.encode()))
  return Question(id=answer, text=text, span=span, answers=(answer,), **fields)


def words(ids):
  return " ".join(TOKENIZER.vocabulary[i] for i in ids if i)


def test_a_mask_in_a_question_is_the_mask_token():
  ((batch, truncated),) = question_batches(
    ["uk is [MASK] .", "uk is"], tokenizer=TOKENIZER, query_length=7, batch_size=2
  )
  assert words(batch.query.ids[0]) == "[CLS] uk is [MASK] . [SEP]"
  assert words(batch.query.ids[1]) == "[CLS] uk is [SEP]"
  assert not truncated.any()


def test_questions_are_read(tmp_path):
  records = [
    {"id": 1, "text": "Zürich is.", "spans": [[0, 7]], "answer": "Zürich"},
    {"id": 2, "text": "a", "spans": [[0, 1]], "answer": "a", "passage": "a b", "kind": "town"},
  ]
  first, second = read_questions(write_lines(tmp_path / "questions.jsonl", *records))
  assert first == Question(id="1", text="Zürich is.", span=(0, 7), answers=("Zürich",))
  assert first.masked_text == "[MASK] is."
  assert (second.passage, second.group) == ("a b", "town")


@pytest.mark.parametrize(
  ("answer", "texts"),
  [
    ("a", ("a",)),
    (["a", "b"], ("a", "b")),
    ({"value": "a", "aliases": ["b", "a"], "normalized_value": "c"}, ("a", "b")),
    ({"text": ["a", "b", "a"], "answer_start": [1, 5, 9]}, ("a", "b")),
    ({"text": "a"}, ("a",)),
  ],
)
def test_answers_are_read_as_datasets_write_them(tmp_path, answer, texts):
  path = write_lines(tmp_path / "q.jsonl", {"question": "q?", "answer": answer})
  assert read_questions(path)[0].answers == texts
  assert read_raw(path)[0]["answer"] == [*texts]


@pytest.mark.parametrize(
  ("ids", "found"),
  [
    ([None, math.nan, "", None], ["1", "2", "3", "4"]),
    ([0, 1], ["0", "1"]),
    (["a", "a", "b", "a"], ["a", "a-2", "b", "a-3"]),
    (["a", "a", "a-2", "a"], ["a", "a-3", "a-2", "a-4"]),
    ([2, None], ["2", "2-2"]),
  ],
)
def test_each_question_has_an_id_of_its_own(tmp_path, ids, found):
  records = [{"id": id, "question": f"{n}?", "answer": "a"} for n, id in enumerate(ids)]
  questions = read_questions(write_lines(tmp_path / "q.jsonl", *records))
  assert [question.id for question in questions] == found


def test_fields_without_a_value_are_missing(tmp_path):
  nothing = {"regex": math.nan, "passage": None, "kind": math.nan}
  path = write_lines(tmp_path / "q.jsonl", {"question": "q?", "answer": "a", **nothing})
  (found,) = read_questions(path)
  assert (found.regex, found.passage, found.group) == (False, "", "")


@pytest.mark.parametrize(
  ("content", "message"),
  [
    ("", r"q\.jsonl has no question"),
    ('{"id": 1, "text": "a", "spans": [[0, 1]], "answer": "a"}\n{}', r"line 2 is not a question"),
    ("nothing", r"line 1 is not JSON \(Expecting value at column 1\); write `question` and"),
    ('{"text": "a", "spans": [[0]], "answer": "a"}', r"; write `question` and"),
    ('{"question": "a", "answer": 5}', r"'answer': 5}; write `question` and"),
    ('{"question": "a", "answer": {"words": ["b"]}}', r"}}; write `question` and"),
    ('{"question": "a", "answer": {"text": []}}', r"it has no answer"),
    ('{"question": "a", "answer": null}', r"it has no answer"),
    ('{"question": "a", "answer": ["b", null]}', r"; write `question` and"),
    ('{"question": "a", "answer": "b", "regex": "no"}', r"`regex` is 'no'; write true or false"),
    ("[1]", r"line 1 is not a question: \[1\]; write `question` and"),
  ],
)
def test_files_without_questions_are_refused(tmp_path, content, message):
  (tmp_path / "q.jsonl").write_text(content)
  with pytest.raises(ValueError, match=message):
    read_questions(tmp_path / "q.jsonl")


def test_questions_become_masked_queries():
  questions = [
    question("The pound is the currency of UK.", "pound"),
    question("Zürichs is the UK.", "Zürichs"),
    question("Euro.한", "."),  # not the empty wordpieces of the next character
  ]
  batches = list(masked_query_batches(questions, batch_size=2, **SIZES))
  assert [list(asked) for asked, _ in batches] == [questions[:2], questions[2:]]
  first, second = (queries for _, queries in batches)
  assert words(first.query.ids[0]) == "[CLS] the [MASK] is the currency of uk . [SEP]"
  assert words(first.query.ids[1]) == "[CLS] [MASK] [MASK] is the uk . [SEP]"
  assert first.query.mask.sum(-1).tolist() == [10, 8]
  assert first.mlm_positions_BxM.tolist() == [[2, 0, 0], [1, 2, 0]]
  assert [words(row) for row in first.mlm_targets_BxM] == ["pound", "zurich ##s"]
  assert first.mlm_weights_BxM.tolist() == [[1, 0, 0], [1, 1, 0]]
  assert first.source_uid_B.tolist() == [0, 0]
  # The last batch is filled up with empty queries.
  assert words(second.query.ids[0]) == "[CLS] euro [MASK] ᄒ ##ᅡ ##ᆫ [SEP]"
  assert words(second.query.ids[1]) == "[CLS] [SEP]"
  assert second.mlm_weights_BxM.tolist() == [[1, 0, 0], [0, 0, 0]]


def test_a_long_question_is_cut_behind_its_answer():
  asked = question("The pound " + "is " * 20, "pound")
  ((_, queries),) = masked_query_batches([asked], batch_size=1, **SIZES)
  assert words(queries.query.ids[0]) == "[CLS] the [MASK]" + " is" * 8 + " [SEP]"


def test_a_text_with_a_mask_is_asked_for_so_many_wordpieces():
  text = "The [MASK] is the currency of UK."
  one = masked_text_query(text, num_masks=1, **SIZES)
  assert words(one.query.ids[0]) == "[CLS] the [MASK] is the currency of uk . [SEP]"
  assert one.mlm_positions_BxM.tolist() == [[2, 0, 0]]
  two = masked_text_query(text, num_masks=2, **SIZES)
  assert words(two.query.ids[0]) == "[CLS] the [MASK] [MASK] is the currency of uk . [SEP]"
  assert two.mlm_positions_BxM.tolist() == [[2, 3, 0]]
  assert two.mlm_weights_BxM.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize(
  ("text", "num_masks", "message"),
  [
    ("no mask", 1, r"has 0 \[MASK\]; write exactly one"),
    ("[MASK] is [MASK]", 1, r"has 2 \[MASK\]; write exactly one"),
    ("is " * 10 + "[MASK]", 1, "is too long: the answer must lie in the first 10 wordpieces"),
    ("is " * 9 + "[MASK]", 2, "is too long"),
    ("[MASK]", 4, "num_masks=4; use 1 to 3"),
    ("[MASK]", 0, "num_masks=0"),
  ],
)
def test_texts_that_cannot_be_asked_are_refused(text, num_masks, message):
  with pytest.raises(ValueError, match=message):
    masked_text_query(text, num_masks=num_masks, **SIZES)


def test_open_questions_are_read_plain_and_compressed(tmp_path):
  path = write_lines(
    tmp_path / "q.jsonl",
    {"id": 7, "question": "who?", "answer": ["he", "she"], "kind": "real", "passage": "He is."},
    {"question": "when?", "answer": r"19\d\d", "regex": True},
  )
  expected = [
    Question(id="7", text="who?", answers=("he", "she"), group="real", passage="He is."),
    Question(id="2", text="when?", answers=(r"19\d\d",), regex=True),
  ]
  assert read_questions(path) == expected
  compressed = tmp_path / "q.jsonl.gz"
  compressed.write_bytes(gzip.compress(path.read_bytes()))
  assert read_questions(compressed) == expected


def test_a_damaged_file_is_refused_by_name(tmp_path):
  cut = tmp_path / "q.jsonl.gz"
  cut.write_bytes(gzip.compress(b'{"question": "who?"}')[:-4])
  for read in (read_questions, read_raw):
    with pytest.raises(ValueError, match=r"q\.jsonl\.gz is truncated or damaged"):
      read(cut)


def test_answers_may_be_missing_where_they_are_asked_for(tmp_path):
  path = write_lines(tmp_path / "q.jsonl", {"question": "who?"})
  assert read_questions(path, answers_known=False)[0].answers == ()
  with pytest.raises(ValueError, match=r"q\.jsonl, line 1 is not a question: .*'who\?'}; write"):
    read_questions(path)


def test_a_file_that_is_not_its_manifests_is_refused(tmp_path):
  path = write_lines(tmp_path / "q.jsonl", {"question": "a", "answer": ["b"]})
  digest = hashlib.sha256(path.read_bytes()).hexdigest()
  manifest = {"files": {"q.jsonl": {"questions": 1, "sha256": digest}}}
  (tmp_path / MANIFEST_FILE).write_text(json.dumps(manifest))
  assert len(read_questions(path)) == 1
  write_lines(tmp_path / "other.jsonl", {"question": "a", "answer": ["c"]})
  assert len(read_questions(tmp_path / "other.jsonl")) == 1  # the manifest says nothing of it
  write_lines(path, {"question": "a", "answer": ["c"]})
  with pytest.raises(ValueError, match="does not match questions_manifest.json"):
    read_questions(path)


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
    (b"1\ta\t1\n1\tb\t1764267061000\n", "line 2 .*the grade is beyond 1,000,000"),
    (b"1 0 a -9223372036854775809\n", "line 1 .*the grade is beyond"),
    (b"1\ta\t1\n1\tb\tscore\n", "line 2 .*'score'"),
    (b"1\ta\t1\n1\ta\t2\n", "line 2 grades"),
    (b"1\ta\t1\n1\tb\xff\t1\n", "line 2 is not UTF-8"),
    (b"\xef\xbb\xbf1\ta\t1\n\xff", "line 2 is not UTF-8 .byte 0xff"),
    ("\ufeff1\ta\t1\n".encode("utf-16-le") + b"x", "line 2 is not UTF-16 .byte 0x78"),
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

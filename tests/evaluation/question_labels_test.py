import numpy as np
import pytest

from realm_jax.corpus.passage_store import PassageStore, PassageStoreWriter
from realm_jax.data.questions import Question
from realm_jax.evaluation.question_labels import find_labels, warn_of_wide_answers
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *"a b c d e f ##f".split()])


@pytest.fixture
def store(tmp_path):
  TOKENIZER.save(tmp_path / "vocabulary")
  writer = PassageStoreWriter(tmp_path, tokenizer=TOKENIZER, max_passage_length=16)
  for uid, text in enumerate(("A b c d.", "E f ff.")):
    ids = TOKENIZER.encode(text)
    writer.append(title="", text=text, title_ids=np.zeros(0), body_ids=ids, uid=uid)
  writer.finish(counts={})
  return PassageStore(tmp_path)


def asked(*questions):
  return [
    Question(id=str(number), text="f [MASK] f", answers=answers)
    for number, answers in enumerate(questions)
  ]


@pytest.mark.parametrize(
  ("answers", "told"),
  [
    ([("a",), ("b c",), ("zzz",)], None),
    ([("a b c",), ("b",)], "1 of 2 questions have only answers wider than max_span_width=2, such"),
    # Wordpieces count, not words; one that is narrow enough will do.
    ([("E f ff",), ("a b c", "d"), ("e f", "a b c")], "'E f ff' (4 wordpieces)"),
    ([("A b c",), ("a b c d",)], "2 of 2 questions"),
    ([("A b c",), ("a b c d",)], "max_span_width=4 holds all"),
  ],
)
def test_answers_wider_than_the_reader_gives_are_counted(answers, told, store, caplog):
  questions = asked(*answers)
  labels = find_labels(questions, file="q.jsonl", store=store, query_length=8)
  caplog.clear()
  warn_of_wide_answers(questions, labels, max_span_width=2)
  assert told in caplog.text if told else not caplog.text


@pytest.mark.parametrize(("query_length", "longer"), [(5, 0), (4, 1)])
def test_a_mask_counts_as_one_wordpiece_of_a_question(query_length, longer, store, caplog):
  with caplog.at_level("INFO"):
    find_labels(asked(("a",)), file="q.jsonl", store=store, query_length=query_length)
  assert f"{longer} are longer than query_length={query_length}" in caplog.text

import json

import pytest

from realm_jax.checkpoints.opening import Sources
from realm_jax.evaluation.systems import Asking
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.json_lines import write_lines
from tests.stores import write_store

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *"paris is in france oslo norway rome .".split()])
TEXTS = ("Paris is in France.", "Oslo is in Norway.", "Rome.", "France is in Norway.")


@pytest.fixture(scope="module")
def passages(tmp_path_factory):
  passages = [{"title": "t", "text": text} for text in TEXTS]
  directory = tmp_path_factory.mktemp("passages")
  return write_store(directory, passages, tokenizer=TOKENIZER).directory


@pytest.fixture
def questions(tmp_path):
  asked = (
    {"question": "where is paris", "answer": ["France"]},
    {"question": "is oslo in norway", "answer": ["Sweden"], "kind": "real"},
    {"question": "where is rome", "answer": [r"ita\w+|rome"], "regex": True},
  )
  return str(write_lines(tmp_path / "questions.jsonl", *asked))


def test_bm25_is_evaluated_with_a_card_and_files_for_other_programs(
  tmp_path, capfd, questions, passages
):
  output = tmp_path / "evaluation"
  given = {
    "questions": questions,
    "sources": Sources(passages=passages, retriever="bm25"),
    "asking": Asking(recall_at=(1, 2)),
  }
  figures = evaluate(
    **given, train_questions=questions, output=str(output), formats=("dpr", "trec")
  )
  groups = figures.pop("groups")
  assert figures == {"questions": 3, "recall@1": 0.6667, "recall@2": 0.6667}
  assert groups["answer_seen"]["questions"] == 3
  assert groups["real"] == {"questions": 1, "recall@1": 0.0, "recall@2": 0.0}

  card = json.loads((output / "figures.json").read_text())
  assert card["measured"]["retriever"] == "BM25"
  assert "4 passages" in card["measured"]["corpus"]
  assert card["intervals"]["recall@1"] == [0, 1]
  page = (output / "card.md").read_text()
  assert (
    questions in page and passages in page and "| recall@1 | 0.6667 | 0.0000 to 1.0000 |" in page
  )
  assert len((output / "predictions.jsonl").read_text().splitlines()) == 3
  assert len(json.loads((output / "retrieved_dpr.json").read_text())) == 3
  assert (output / "retrieved.trec").read_text().startswith("1 Q0 0 1 ")

  several, both = {**given, "questions": f"one={questions},other={questions}"}, tmp_path / "both"
  figures = evaluate(**several, output=str(both))
  assert list(figures) == ["one", "other"]
  same = [(both / name / "predictions.jsonl").read_bytes() for name in figures]
  assert same == [(output / "predictions.jsonl").read_bytes()] * 2
  assert not list(both.glob("*/retrieved*"))


def test_predictions_of_other_programs_are_scored(tmp_path, questions):
  mine = write_lines(
    tmp_path / "mine.jsonl",
    {"question": "where is paris", "prediction": "the france"},
    {"question": "where is rome", "prediction": "Italy, of course"},
  )
  output = tmp_path / "evaluation"
  figures = evaluate(questions=questions, predictions=str(mine), output=str(output))
  assert figures.pop("groups")["real"]["exact_match"] == 0
  assert figures == {"questions": 3, "exact_match": 0.6667, "exact_match_corrected": 0.3333}
  card = json.loads((output / "figures.json").read_text())
  assert card["measured"]["missing predictions"] == 1
  lines = (output / "predictions.jsonl").read_text().splitlines()
  assert [json.loads(line)["figures"]["exact_match"] for line in lines] == [1, 0, 1]

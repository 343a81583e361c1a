import pytest

from realm_jax.evaluation.open_qa import (
  evaluate_questions,
  question_groups,
  question_scores,
  score_names,
  summary,
)

FOUND = {"where?": [1, 3, 0], "what?": [2, 1, 0], "who?": [0, 1, 2]}
SAID = {"where?": ["The  France!", "x"], "what?": ["Oslo in Norway"], "who?": []}


def ask_told(predictor, questions, **keywords):
  return evaluate_questions(predictor.retrieve, questions, answer=predictor.answer, **keywords)


@pytest.fixture
def questions(ask):
  return [
    ask("where?", "france", group="real"),
    ask("what?", "Oslo", "norway", group="real"),
    ask("who?", "nobody", group="made"),
  ]


def test_retrieval_alone_has_recall_only(questions, told, match):
  outcomes = evaluate_questions(told(FOUND).retrieve, questions, retrieve_k=5, batch_size=2)
  assert [outcome.passage_ids for outcome in outcomes] == [(1, 3, 0), (2, 1, 0), (0, 1, 2)]
  assert outcomes[0].scores == (9.5, 8.5, 7.5)
  assert [outcome.prediction for outcome in outcomes] == ["", "", ""]
  scores = question_scores(outcomes, matcher=match(questions), recall_at=(1, 2, 3, 5))
  assert {name: values.tolist() for name, values in scores.items()} == {
    "recall@1": [0, 0, 0],
    "recall@2": [1, 1, 0],
    "recall@3": [1, 1, 0],
  }


def test_answers_are_scored_and_split(questions, told, match):
  outcomes = ask_told(told(FOUND, SAID), questions, retrieve_k=2, batch_size=2)
  scores = question_scores(outcomes, matcher=match(questions), recall_at=(1, 2))
  members = question_groups(outcomes, scores=scores, train_answers=["Norway!", "Rome"])
  found = summary(scores, groups=members)
  groups = found.pop("groups")
  assert found == {
    "questions": 3,
    "recall@1": 0.0,
    "recall@2": 0.6667,
    "reader_oracle": 0.0,
    "exact_match": 0.3333,
    "exact_match_corrected": 0.3333,
    "f1": 0.5,  # 1, 1/2 and nothing
  }
  assert {name: (of["questions"], of.get("exact_match")) for name, of in groups.items()} == {
    "made": (1, 0.0),
    "real": (2, 0.5),
    "retrieval_hit": (0, None),
    "retrieval_miss": (3, 0.3333),
    "answer_seen": (1, 0.0),
    "answer_unseen": (2, 0.5),
  }


def test_regular_expressions_have_no_f1(ask, told, match):
  questions = [ask("where?", r"fra\w+", regex=True)]
  outcomes = ask_told(told(FOUND, SAID), questions, retrieve_k=2)
  scores = question_scores(outcomes, matcher=match(questions))
  assert {name: values.tolist() for name, values in scores.items()} == {
    "recall@1": [0],
    "reader_oracle": [0],
    "exact_match": [0],  # "The  France!" does not begin with it
    "exact_match_corrected": [1],
  }
  assert list(scores) == score_names(questions, width=2)

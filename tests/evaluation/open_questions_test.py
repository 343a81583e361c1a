import dataclasses
import json

import numpy as np
import pytest

from realm_jax.evaluation.document_ranking import run_text
from realm_jax.evaluation.open_questions import (
  OpenQuestions,
  dpr_json,
  passage_run,
  read_predictions,
  score_names,
)
from realm_jax.evaluation.systems import Asking, System

FOUND = {"where?": [1, 3, 0], "what?": [2, 1, 0], "who?": [0, 1, 2], "w h a t?": [1]}
SAID = {
  "where?": ["The  France!", "x"],
  "what?": ["Oslo in Norway"],
  "who?": [],
  "w h a t?": ["Oslo"],
}


@pytest.fixture
def evaluated(told, store):
  """`evaluated(questions, said=None, recall_at=...)` asks and returns outcomes and evaluation."""

  def ask_and_score(questions, said=None, *, recall_at, train_answers=None):
    asked = OpenQuestions(
      inputs={},
      questions=questions,
      asking=Asking(recall_at=recall_at, batch_size=2),
      train_answers=train_answers,
    )
    system = System(store, {}, told(FOUND).retrieve)
    if said is not None:
      system = dataclasses.replace(system, answer=told(FOUND, said).answer)
    outcomes = asked.ask(system)
    return outcomes, asked.scored(outcomes, system)

  return ask_and_score


@pytest.fixture
def questions(ask):
  return [
    ask("where?", "france", group="real"),
    ask("what?", "Oslo", "norway", group="real"),
    ask("who?", "nobody", group="made"),
  ]


def test_retrieval_alone_has_recall_only(questions, evaluated):
  outcomes, found = evaluated(questions, recall_at=(1, 2, 3, 5))
  assert [outcome.passage_ids for outcome in outcomes] == [(1, 3, 0), (2, 1, 0), (0, 1, 2)]
  assert outcomes[0].scores == (9.5, 8.5, 7.5)
  assert [outcome.prediction for outcome in outcomes] == ["", "", ""]
  assert {name: values.tolist() for name, values in found.scores.items()} == {
    "recall@1": [0, 0, 0],
    "recall@2": [1, 1, 0],
    "recall@3": [1, 1, 0],
  }


def test_answers_are_scored_and_split(questions, evaluated):
  _, found = evaluated(questions, SAID, recall_at=(1, 2), train_answers=["Norway!", "Rome"])
  figures = found.summary()
  groups = figures.pop("groups")
  assert figures == {
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


def test_regular_expressions_have_no_f1(ask, evaluated):
  questions = [ask("where?", r"fra\w+", regex=True)]
  _, found = evaluated(questions, SAID, recall_at=(1, 5))
  assert {name: values.tolist() for name, values in found.scores.items()} == {
    "recall@1": [0],
    "reader_oracle": [0],
    "exact_match": [0],  # "The  France!" does not begin with it
    "exact_match_corrected": [1],
  }
  assert list(found.scores) == score_names(questions, width=3)


@pytest.fixture
def two(ask):
  return [ask("where?", "norway"), ask("w h a t?", "the oslo fjord")]


@pytest.fixture
def two_evaluated(two, evaluated):
  return evaluated(two, {**SAID, "where?": ["Norway"]}, recall_at=(1, 2))


def write(path, *lines):
  path.write_text("".join(line + "\n" for line in lines))
  return path


def test_predictions_come_back_with_their_scores(tmp_path, two, two_evaluated):
  _, evaluated = two_evaluated
  path = write(tmp_path / "p.jsonl", *evaluated.predictions().splitlines())
  record = json.loads(path.read_text().splitlines()[0])
  assert record["id"] == record["question"] == "where?"
  assert (record["prediction"], record["reference"]) == ("Norway", ["norway"])
  assert (record["passage_ids"], record["scores"], record["read_ids"]) == ([1, 3], [9.5, 8.5], [1])
  assert record["answers"][0]["text"] == "Norway"
  found = read_predictions(path, two[::-1])
  assert found.measured["missing predictions"] == 0
  assert {name: values.tolist() for name, values in found.scores.items()} == {
    name: np.round(values[::-1], 6).tolist() for name, values in evaluated.scores.items()
  }


def line(prediction, **names):
  return json.dumps({**names, "prediction": prediction})


WHERE, WHAT = {"question": "where?"}, {"question": "w h a t?"}


@pytest.mark.parametrize(
  ("lines", "ids", "missing", "exact"),
  [
    ([line("The Norway.", **WHERE)], None, 1, [1, 0]),
    ([line("The Norway.", **WHERE), line("Oslo Fjord", id="q2")], ("q1", "q2"), 0, [1, 1]),
    # Null or NaN is no answer, even where "None" or "nan" is one; lines may be blank.
    ([line(None, id="q1"), "", line(np.nan, id="q2"), ""], ("q1", "q2"), 0, [0, 0]),
    # Equal ids of different questions, and ids that name other questions, do not count.
    *(
      ([line("norway", id=a, **WHERE), line("oslo fjord", id=b, **WHAT)], ids, 0, [1, 1])
      for a, b, ids in ((None, None, ("None", "2")), ("0", "1", ("1", "2")))
    ),
  ],
)
def test_predictions_of_other_programs_are_scored(lines, ids, missing, exact, tmp_path, two):
  if ids is not None:
    two = [dataclasses.replace(question, id=id) for question, id in zip(two, ids, strict=True)]
  found = read_predictions(write(tmp_path / "p.jsonl", *lines), two)
  assert found.measured["missing predictions"] == missing
  assert found.scores["exact_match"].tolist() == exact


@pytest.mark.parametrize(
  "line",
  [
    '{"prediction": "Oslo"}',
    '{"question": "where?"}',
    '{"question": "where?", "prediction": "y"}',
    '{"question": "w h a t?", "prediction": true}',
    '{"question": "w h a t?", "prediction": ["y"]}',
    '{"question": "w h a t?", "figures": {"exact_match": NaN}}',
    "nothing",
    "[]",
  ],
)
def test_what_is_no_prediction_is_named(tmp_path, two, line):
  path = write(tmp_path / "p.jsonl", '{"question": "where?", "prediction": "x"}', line)
  message = "line 2 is not a prediction: .*; write JSON with `prediction`"
  with pytest.raises(ValueError, match=message):
    read_predictions(path, two)


def test_which_of_several_predictions_is_a_questions_is_not_guessed(tmp_path, two):
  lines = [
    '{"id": "7", "question": "where?", "prediction": "Norway"}',
    '{"id": "8", "question": "where?", "prediction": "Oslo"}',
    '{"question": "where?", "prediction": "Bergen"}',
  ]
  for some in (
    lines[:2],
    lines[1:],
    [lines[0].replace("7", "where?"), '{"id": "where?", "prediction": ""}'],
  ):
    path = write(tmp_path / "p.jsonl", *some)
    with pytest.raises(ValueError, match="has several predictions of 'where\\?'; give the `id`"):
      read_predictions(path, two)
  same = [dataclasses.replace(two[0], id=id) for id in ("8", "7")]
  found = read_predictions(write(tmp_path / "p.jsonl", *lines), same)
  assert found.scores["exact_match"].tolist() == [0, 1], "by their ids"
  twice = [lines[0], lines[0].replace("7", "8")]
  assert read_predictions(write(tmp_path / "p.jsonl", *twice), two[:1]).scores["exact_match"] == [1]


def test_no_prediction_counts_as_wrong_because_others_have_figures(tmp_path, two):
  scored = '{"question": "where?", "prediction": "x", "figures": {"exact_match": 1}}'
  path = write(tmp_path / "p.jsonl", scored, '{"question": "w h a t?", "prediction": "Oslo"}')
  with pytest.raises(ValueError, match="`figures` of 1 questions and only a `prediction` of 1 oth"):
    read_predictions(path, two)
  assert read_predictions(path, two[:1]).scores["exact_match"].tolist() == [1]


def test_retrieved_passages_in_the_formats_of_others(two, two_evaluated, match, store):
  outcomes, _ = two_evaluated
  found = json.loads(dpr_json(outcomes, store=store, matcher=match(two)))
  first = {"id": "1", "title": "title 1", "text": "Oslo is in Norway.", "score": "9.5"}
  second = {"id": "3", "title": "title 3", "text": "France is in Norway.", "score": "8.5"}
  assert found[0] == {
    "question": "where?",
    "answers": ["norway"],
    "ctxs": [{**first, "has_answer": True}, {**second, "has_answer": True}],
  }
  assert [ctx["has_answer"] for ctx in found[1]["ctxs"]] == [False]
  assert run_text(passage_run(outcomes), tag="my run").splitlines() == [
    "where? Q0 1 1 9.5 my_run",
    "where? Q0 3 2 8.5 my_run",
    "w h a t?\tQ0\t1\t1\t9.5\tmy_run",
  ]

import dataclasses
import json

import numpy as np
import pytest

from realm_jax.checkpoints.opening import open_corpus
from realm_jax.evaluation.document_ranking import passage_run, run_text
from realm_jax.evaluation.open_qa import evaluate_questions
from realm_jax.evaluation.open_questions import OpenQuestions, dpr_json
from realm_jax.evaluation.prediction_files import read
from realm_jax.evaluation.systems import Asking, System

FOUND = {"where?": [1, 3], "w h a t?": [1]}
SAID = {"where?": ["Norway"], "w h a t?": ["Oslo"]}


@pytest.fixture
def questions(ask):
  return [ask("where?", "norway"), ask("w h a t?", "the oslo fjord")]


@pytest.fixture
def outcomes(questions, told):
  predictor = told(FOUND, SAID)
  return evaluate_questions(predictor.retrieve, questions, answer=predictor.answer, retrieve_k=2)


def write(path, *lines):
  path.write_text("".join(line + "\n" for line in lines))
  return path


def test_predictions_come_back_with_their_scores(tmp_path, questions, outcomes, store):
  asked = OpenQuestions(inputs={}, questions=questions, asking=Asking(recall_at=(1, 2)))
  evaluated = asked.scored(outcomes, System(open_corpus(store.directory), {}, retrieve=print))
  path = write(tmp_path / "p.jsonl", *evaluated.predictions().splitlines())
  record = json.loads(path.read_text().splitlines()[0])
  assert record["id"] == record["question"] == "where?"
  assert (record["prediction"], record["reference"]) == ("Norway", ["norway"])
  assert (record["passage_ids"], record["scores"], record["read_ids"]) == ([1, 3], [9.5, 8.5], [1])
  assert record["answers"][0]["text"] == "Norway"
  found = read(path, questions[::-1])
  assert found.measured["missing predictions"] == 0
  assert {name: values.tolist() for name, values in found.scores.items()} == {
    name: np.round(values[::-1], 6).tolist() for name, values in evaluated.scores.items()
  }


def test_predictions_of_other_programs_are_scored(tmp_path, questions):
  where = '{"question": "where?", "prediction": "The Norway."}'
  found = read(write(tmp_path / "p.jsonl", where), questions)
  assert found.measured["missing predictions"] == 1
  assert found.scores["exact_match"].tolist() == [1, 0]
  named = [questions[0], dataclasses.replace(questions[1], id="q2")]
  what = '{"id": "q2", "prediction": "Oslo Fjord"}'
  found = read(write(tmp_path / "p.jsonl", where, what), named)
  assert found.measured["missing predictions"] == 0
  assert found.scores["exact_match"].tolist() == [1, 1]


def test_an_id_that_names_another_question_does_not_count(tmp_path, questions):
  named = [dataclasses.replace(q, id=str(i)) for i, q in enumerate(questions, 1)]
  lines = [
    f'{{"id": "{i}", "question": "{q.text}", "prediction": "{q.answer}"}}'
    for i, q in enumerate(questions)
  ]
  found = read(write(tmp_path / "p.jsonl", *lines), named)
  assert found.measured["missing predictions"] == 0
  assert found.scores["exact_match"].tolist() == [1, 1]


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ('{"prediction": "Oslo"}', "line 2 is not a prediction: .*; write JSON with `prediction`"),
    ('{"question": "where?"}', "line 2 is not a prediction: .*; write JSON with `prediction`"),
    ("nothing", "line 2 is not a prediction"),
  ],
)
def test_what_is_no_prediction_is_named(tmp_path, questions, line, message):
  path = write(tmp_path / "p.jsonl", '{"question": "where?", "prediction": "x"}', line)
  with pytest.raises(ValueError, match=message):
    read(path, questions)


def test_dprs_json(questions, outcomes, match, store):
  found = json.loads(dpr_json(outcomes, store=store, matcher=match(questions)))
  assert found[0] == {
    "question": "where?",
    "answers": ["norway"],
    "ctxs": [
      {
        "id": "1",
        "title": "title 1",
        "text": "Oslo is in Norway.",
        "score": "9.5",
        "has_answer": True,
      },
      {
        "id": "3",
        "title": "title 3",
        "text": "France is in Norway.",
        "score": "8.5",
        "has_answer": True,
      },
    ],
  }
  assert [ctx["has_answer"] for ctx in found[1]["ctxs"]] == [False]


def test_trec_runs(outcomes):
  assert run_text(passage_run(outcomes), tag="my run").splitlines() == [
    "where? Q0 1 1 9.5 my_run",
    "where? Q0 3 2 8.5 my_run",
    "w h a t?\tQ0\t1\t1\t9.5\tmy_run",
  ]

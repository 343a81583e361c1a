"""Prepared arrays are the examples of their task; see `killed_trainer_test.py` for pre-training."""

import dataclasses
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from realm_jax import main
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import prepared_examples
from realm_jax.data.questions import read_questions
from realm_jax.training.recipes.examples import (
  Examples,
  MaskedQueryData,
  PairData,
  QuestionData,
  question_examples,
)
from tests.configurations import changed
from tests.e2e.conftest import WITHOUT_TENSORFLOW
from tests.experiments import ROOT

pytestmark = pytest.mark.timeout(600)


def prepare(world, name, *flags):
  assert main.main(["prepare_examples", f"--output={world / name}", *flags]) == 0


@pytest.mark.slow
def test_other_tasks_come_back_from_arrays(world, tmp_path):
  asked = tmp_path / "asked.jsonl"
  asked.write_text(
    "".join(json.dumps({"question": f"what is {i} ?", "answer": "the"}) + "\n" for i in range(20))
  )
  vocabulary = str(world / "vocabulary")
  passages = str(world / "passages")
  pairs = PairData(query_length=16, passage_length=32)
  made = {
    "inverse_cloze": Examples(data=pairs, source=passages, vocabulary=vocabulary),
    "questions": question_examples(
      read_questions(asked),
      data=QuestionData(query_length=16),
      source=str(asked),
      store=PassageStore(passages),
    ),
  }
  for task, flags, num_streams in (
    (
      "inverse_cloze",
      [f"--vocabulary={vocabulary}", "--num_examples=16", "--passage_length=32"],
      1,
    ),
    ("questions", [f"--passages={passages}", "--num_epochs=2"], 2),
  ):
    prepare(
      tmp_path,
      task,
      f"--task={task}",
      f"--corpus={made[task].source}",
      *flags,
      f"--data_streams={num_streams}",
      "--query_length=16",
    )
    prepared = dataclasses.replace(made[task], source=str(tmp_path / task))
    data = changed(made[task].data, data_streams=num_streams, batch_size=8 * num_streams)
    streams = [
      dataclasses.replace(examples, data=data).streams(seed=0)
      for examples in (made[task], prepared)
    ]
    for _ in range(2):
      expected, found = map(next, streams)
      assert expected.keys() == found.keys()
      for name in expected:
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name], expected[name])
    with pytest.raises(ValueError, match="read prepared examples; use the same examples or"):
      streams[0].restore(streams[1].position())
  counts = prepared_examples.read_manifest(tmp_path / "questions").num_examples
  assert counts == (20, 20)


@pytest.mark.slow
@pytest.mark.usefixtures("tuned_whole")
def test_a_fine_tuning_without_tensorflow_has_the_losses_of_the_task(world, losses):
  questions, passages = world / "almanac" / "training_questions.jsonl", world / "passages"
  asked = ["--task=questions", f"--corpus={questions}", f"--passages={passages}"]
  prepare(world, "asked", *asked, "--query_length=32")
  places = {
    "workdir": world / "tuned_on_arrays",
    "examples": world / "asked",
    "questions": questions,
    "passages": passages,
    "index": world / "index",
    "start": world / "first" / "checkpoints",
  }
  # The program of `FINETUNING`.
  sizes = ["--beam_size=60", "--num_read=8", "--joint_length=48", "--span_hidden_size=8"]
  sizes += ["--num_steps=2", "--batch_size=8", "--query_length=32", "--log_every=1"]
  sizes += ["--learning_rate=1e-3", "--warmup_steps=1", "--schedule=constant", "--max_span_width=4"]
  command = ["finetune", *sizes, *(f"--{name}={value}" for name, value in places.items())]
  child = [sys.executable, "-c", WITHOUT_TENSORFLOW, json.dumps(command)]
  assert subprocess.run(child, cwd=ROOT).returncode == 0
  of_task = losses("tuned_whole")
  assert losses("tuned_on_arrays") == {step: of_task[step] for step in (1, 2)}


def test_an_evaluation_reads_the_same_from_arrays(world):
  masked = ("--task=masked_queries", "--query_length=32", "--max_masks=3", "--order=corpus")
  prepare(world, "evaluated_on", *masked, f"--corpus={world / 'passages'}")
  data = MaskedQueryData(batch_size=64, query_length=32, max_masks=3)
  made, found = (
    Examples(data=data, source=str(world / name), vocabulary=str(world / "vocabulary"))
    for name in ("passages", "evaluated_on")
  )
  opened = (examples.open(batch_size=64, seed=0, training=False) for examples in (made, found))
  pairs = list(zip(*opened, strict=True))
  assert len(pairs) > 3
  for one, other in pairs:
    assert one.keys() == other.keys()
    jax.tree.map(np.testing.assert_array_equal, one, other)

"""A trainer fed from prepared arrays, without TensorFlow, has the losses of one fed by a task."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from realm_jax import main
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import prepared_examples
from realm_jax.data.questions import read_questions
from realm_jax.runs.example_sources import (
  Examples,
  PairData,
  QuestionData,
  question_examples,
)
from tests.configurations import changed
from tests.experiments import ROOT

pytestmark = pytest.mark.timeout(600)

# On a machine without TensorFlow, parses the experiments and runs command lines as processes do.
WITHOUT_TENSORFLOW = """
import glob, importlib.abc, json, sys

class Missing(importlib.abc.MetaPathFinder):
  def find_spec(self, name, path, target=None):
    if name.split(".")[0] in ("tensorflow", "tensorflow_text", "seqio", "tokenizers"):
      raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import gin
from realm_jax import main
from realm_jax.jobs.training import finetune, launch_local, pretrain, train_retriever
for experiment in glob.glob("gin/experiments/*.gin"):
  gin.parse_config_file(experiment)
  gin.clear_config()
sys.exit(any(main.main(command) for command in json.loads(sys.argv[1])))
"""
MASKED = ("--task=masked_queries", "--query_length=32", "--max_masks=3")


def prepare(world, name, *flags):
  assert main.main(["prepare_examples", f"--output={world / name}", *flags]) == 0


@pytest.fixture(scope="module")
def pretrain(world, arguments):
  """`pretrain(name, corpus=..., eval_corpus=..., num_steps=N)` is a command line."""

  def command(name, *, corpus, eval_corpus, num_steps):
    places = {"corpus": world / corpus, "eval_corpus": world / eval_corpus}
    often = {"eval_every": 2, "eval_steps": 2, "checkpoint_every": 2}
    return arguments(name, **places, **often, num_steps=num_steps)

  return command


@pytest.fixture(scope="module")
def finetune(world):
  """`finetune(name, **keywords)` is a command line."""
  sizes = ["--beam_size=60", "--num_read=8", "--joint_length=48", "--span_hidden_size=8"]
  sizes += ["--num_steps=2", "--batch_size=8", "--query_length=32", "--log_every=1"]
  # The program of `FINETUNING`.
  sizes += ["--learning_rate=1e-3", "--warmup_steps=1", "--schedule=constant", "--max_span_width=4"]
  first = world / "first" / "checkpoints"
  places = {
    "questions": world / "almanac" / "training_questions.jsonl",
    "passages": world / "passages",
    "index": world / "index",
    "retriever": first,
    "reader": first,
  }

  def command(name, **keywords):
    given = {"workdir": world / name, **places, **keywords}
    return ["finetune", *sizes, *(f"--{k}={v}" for k, v in given.items())]

  return command


FED = {"corpus": "trained_on", "eval_corpus": "evaluated_on"}


@pytest.fixture(scope="module")
def trained_without_tensorflow(world, pretrain, finetune):
  """Pre-trains `from_arrays` and fine-tunes `tuned_on_arrays` in a process of their own."""
  questions, passages = world / "almanac" / "training_questions.jsonl", world / "passages"
  prepare(world, "trained_on", *MASKED, f"--corpus={world / 'training'}", "--num_examples=60")
  prepare(world, "evaluated_on", *MASKED, f"--corpus={passages}", "--order=corpus")
  asked = ["--task=questions", f"--corpus={questions}", f"--passages={passages}"]
  prepare(world, "asked", *asked, "--query_length=32")
  commands = [
    pretrain("from_arrays", **FED, num_steps=2),
    finetune("tuned_on_arrays", examples=world / "asked"),
  ]
  child = [sys.executable, "-c", WITHOUT_TENSORFLOW, json.dumps(commands)]
  assert subprocess.run(child, cwd=ROOT).returncode == 0


@pytest.mark.usefixtures("trained_without_tensorflow")
def test_a_trainer_without_tensorflow_has_the_losses_of_the_task(pretrain, rows, losses):
  assert main.main(pretrain("from_arrays", **FED, num_steps=4)) == 0
  plain = {"corpus": "training", "eval_corpus": "passages"}
  assert main.main(pretrain("from_task", **plain, num_steps=4)) == 0
  assert list(losses("from_arrays")) == [1, 2, 3, 4]
  arrays, task = rows("from_arrays"), rows("from_task")
  for name in ("loss/total", "eval/span_accuracy"):
    assert [row.get(name) for row in arrays] == [row.get(name) for row in task]
    assert any(name in row for row in task)
  assert [row["data/rejected_no_salient_span"] for row in (arrays[-1], task[-1])] == [0, 0]


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


@pytest.mark.usefixtures("trained_without_tensorflow")
def test_a_fine_tuning_without_tensorflow_has_the_losses_of_the_task(finetune, losses):
  assert main.main(finetune("tuned_on_task")) == 0
  assert list(losses("tuned_on_arrays")) == [1, 2]
  assert losses("tuned_on_arrays") == losses("tuned_on_task")
  assert losses("tuned_on_task")[1] > 0

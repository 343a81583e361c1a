"""Two trainer processes of four devices each against one of eight, on the same examples.

The two search the index together, then half of it each; then one of them goes on alone.
"""

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from realm_jax import main
from realm_jax.checkpoints import orbax_files
from realm_jax.index import generations
from realm_jax.training.run.metric_writers import METRICS_FILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Of float32 sums in another order, in each of twenty steps.
_ROUNDING = 60 * float(np.finfo(np.float32).eps)

REFRESH = """
from realm_jax.retrieval import index_refresher
from realm_jax.retrieval import posterior
from realm_jax.retrieval import retriever
retriever.RetrievalConfig.posterior = @posterior.Bm25Posterior()
posterior.Bm25Posterior.num_passages = 1
index_refresher.RefreshConfig.poll_seconds = 0.05
index_refresher.RefreshConfig.max_staleness_steps = 10
index_refresher.RefreshConfig.when_late = "wait"
"""


def publish_in_two_shards(world, name, generation, *, sign, training_step):
  """Publishes the world's embeddings, with a sign, for exact search by the run of a name.

  The first generation is searched by all devices together, the next by one device of each process.
  """
  source = str(world / "index")
  embeddings_NxE = generations.restore(source, 0, 0)["embeddings"]
  shards = [{"embeddings": sign * part} for part in np.array_split(embeddings_NxE, 2)]
  manifest = generations.read_manifest(source, 0)
  manifest = dataclasses.replace(
    manifest,
    training_step=training_step,
    run=orbax_files.run_of(str(world / name / "checkpoints")).name,
    searcher={**manifest.searcher, "kind": "exact" if generation else "device"},
  )
  generations.publish(str(world / f"{name}_index"), generation, shards, manifest=manifest, keep=2)


def publish_when_waited_for(world, name):
  """Publishes generation 0 of a run's first checkpoint, and generation 1 when it must have it."""
  while not orbax_files.steps(world / name / "checkpoints"):
    time.sleep(0.05)
  publish_in_two_shards(world, name, 0, sign=1, training_step=0)
  metrics = world / name / METRICS_FILE
  size, since = -1, time.monotonic()
  while size <= 0 or time.monotonic() < since + 2:
    time.sleep(0.05)
    found = metrics.stat().st_size if metrics.exists() else 0
    if found != size:
      size, since = found, time.monotonic()
  while not orbax_files.run_of(str(world / name / "checkpoints")).has_reached(10):
    time.sleep(0.05)
  # Other passages are found from here on.
  publish_in_two_shards(world, name, 1, sign=-1, training_step=10)


@contextlib.contextmanager
def published(world, name):
  """Publishes two generations for the run of a name, each when the run waits for it."""
  publisher = threading.Thread(target=publish_when_waited_for, args=(world, name), daemon=True)
  publisher.start()
  yield
  publisher.join()


def run_together(commands):
  """Runs one process of four devices a command until all have ended."""
  flags = [f for f in os.environ["XLA_FLAGS"].split() if "device_count" not in f]
  flags.append("--xla_force_host_platform_device_count=4")
  environment = {**os.environ, "XLA_FLAGS": " ".join(flags)}
  processes = [
    subprocess.Popen([sys.executable, *command], env=environment) for command in commands
  ]
  try:
    assert [process.wait(300) for process in processes] == [0] * len(commands)
  finally:
    for process in processes:
      process.kill()


def free_port():
  with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    return listener.getsockname()[1]


def prepare(world, name, corpus, *flags):
  places = [f"--corpus={world / corpus}", f"--output={world / name}"]
  assert main.main(["prepare_examples", *places, *flags]) == 0


@pytest.fixture(scope="module")
def command(world, arguments):
  """`command(name, num_steps=N, ...)` is the command line of a run that waits for generations."""
  gin = world / "waiting.gin"
  gin.write_text((world / "tiny.gin").read_text() + REFRESH)
  # Without TensorFlow in the processes.
  masked = ["--task=masked_queries", "--query_length=32", "--max_masks=3"]
  prepare(world, "two_streams", "training", *masked, "--num_examples=200", "--data_streams=2")
  prepare(world, "in_order", "passages", *masked, "--order=corpus")

  def make(name, *, num_steps, **keywords):
    settings = {
      "gin_file": gin,
      "corpus": world / "two_streams",
      "index": world / f"{name}_index",
      "generation": "none",
      "num_steps": num_steps,
      "checkpoint_every": 10,
      "data_streams": 2,
      "eval_corpus": world / "in_order",
      "eval_every": 10,
      "eval_steps": 2,
    }
    return arguments(name, **{**settings, **keywords})

  return make


def train_by_two(command):
  """Trains with two processes that join each other."""
  both = ["-m", "realm_jax.main", *command, f"--coordinator=127.0.0.1:{free_port()}"]
  run_together([[*both, "--num_processes=2", f"--process_id={i}"] for i in range(2)])


@pytest.fixture(scope="module")
def losses_of_two(world, command, losses):
  """The losses of the run `two`, which two processes have trained for 13 steps."""
  with published(world, "two"):
    train_by_two(command("two", num_steps=13, spread_index=True))
  assert list(losses("two")) == list(range(1, 14))
  return losses("two")


def test_two_processes_and_then_one_train_like_one(world, command, losses, losses_of_two):
  with published(world, "one"):
    assert main.main(command("one", num_steps=20)) == 0
  assert main.main(command("two", num_steps=20)) == 0
  one, two = losses("one"), losses("two")
  assert list(two) == list(one) == list(range(1, 21))
  assert list(two.values()) == pytest.approx(list(one.values()), rel=_ROUNDING)
  swaps = []
  for name in ("one", "two"):
    with open(world / name / "swaps.jsonl", encoding="utf-8") as file:
      swaps.append([(row["step"], row["generation"]) for row in map(json.loads, file)])
  assert swaps[0] == [(0, 0), (11, 1)]
  assert swaps[1] == [*swaps[0], (13, 1)]


_TOO_FEW = """
import sys
from realm_jax.data import batches
from realm_jax.devices import processes

def open_stream(*, batch_size, shard):
  if shard.index == 1:
    raise batches.TooFewExamplesError("stream 1 has none")

processes.join(coordinator=sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
try:
  batches.Streams(open_stream, num_streams=None, batch_size=4)
except ValueError as error:
  assert str(error) == "stream 1 has none; 2 processes need at least as many examples", error
else:
  raise AssertionError("refused by the other process alone")
"""


def test_fewer_examples_than_processes_are_refused_by_all():
  coordinator = f"127.0.0.1:{free_port()}"
  run_together([["-c", _TOO_FEW, coordinator, str(i)] for i in range(2)])


def test_fine_tuning_split_over_two_processes_is_that_of_one(world, losses):
  """With parameters that no process has whole, from the digest of the encoder to the checkpoint."""
  first = world / "first" / "checkpoints"
  questions = "almanac/training_questions.jsonl"
  flags = ["--task=questions", f"--passages={world / 'passages'}", "--query_length=32"]
  prepare(world, "asked_of_two", questions, *flags, "--data_streams=2")

  def command(name, *, layout):
    places = {
      "workdir": world / name,
      "questions": world / questions,
      "examples": world / "asked_of_two",
      "passages": world / "passages",
      "index": world / "index",
      "start": first,
    }
    settings = {
      "layout": layout,
      "num_steps": 3,
      "log_every": 1,
      "finetuning.data.batch_size": 8,
      "finetuning.data.query_length": 32,
      "beam_size": 60,
      "num_read": 8,
      "joint_length": 48,
      "max_span_width": 4,
      "span_hidden_size": 8,
      "warmup_steps": 1,
      "learning_rate": 1e-3,
      "schedule": "constant",  # as other tests, so that the step of one process is compiled once
      "data_streams": 2,
    }
    return ["finetune", *(f"--{k}={v}" for k, v in {**places, **settings}.items())]

  assert main.main(command("tuned_by_one", layout="replicated")) == 0
  train_by_two(command("tuned_by_two", layout="fully_sharded"))
  one, two = losses("tuned_by_one"), losses("tuned_by_two")
  assert list(one) == [1, 2, 3]
  assert two == pytest.approx(one, rel=_ROUNDING)

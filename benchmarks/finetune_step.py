"""Fine-tuning steps with a beam of 5,000 passages against steps with a beam of those that are read.

Both run through the training loop with live exact search: same reader, same questions, same index;
the beam's embeddings are gathered on the host and scored in the step. The two take turns for a few
steps at a time, so that what else the machine does falls on both alike.

  python benchmarks/finetune_step.py --output=finetune_step.json
"""

import argparse
import functools
import json
import os
import statistics
import tempfile

import flax.linen as nn
import jax
import numpy as np
from demo_training import write_store
from retrieval_step import OneGeneration, Turns
from search import clustered_embeddings

from realm_jax.checkpoints import saved_models
from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Questions, Tokens
from realm_jax.index.exact_searcher import ExactSearcher
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder_programs import query_encoder
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.models.span_reader import SpanReaderConfig
from realm_jax.objectives.open_qa import OpenQa
from realm_jax.retrieval.index_refresher import IndexRefresher, LoadedGeneration, RefreshConfig
from realm_jax.retrieval.question_retriever import (
  BeamConfig,
  QuestionRetriever,
)
from realm_jax.retrieval.retrieved_batches import RetrievedBatches
from realm_jax.training import train_state
from realm_jax.training.optimizer import OptimizerConfig, make_optimizer
from realm_jax.training.train_step import make_train_step

NUM_READ, QUERY_LENGTH = 5, 32


class EveryTenth:
  """Every tenth passage answers every question, with its third to fifth wordpiece."""

  def contains(self, question_index_B, ids_BxR):
    return (ids_BxR % 10 == 0) & (ids_BxR >= 0)

  def spans(self, question_index, row):
    return np.array([[2, 4]] if row % 10 == 0 else np.zeros((0, 2)), np.int32)


class FinetuneTraining:
  """State, compiled step and query encoder of a fine-tuning with a frozen index."""

  def __init__(self, bert: BertConfig):
    self.config = DualEncoderConfig(bert=bert, towers="separate")
    model = OpenQaModel(self.config, SpanReaderConfig(bert=bert))
    optimizer = make_optimizer(
      OptimizerConfig(
        learning_rate=1e-5,
        warmup_steps=0,
        schedule="constant",
        frozen_parts=("dual_encoder/passage_tower",),
      ),
      num_steps=1000,
    )
    self._batch_sharding = partitioning.batch_sharding(partitioning.make_mesh())

    objective = OpenQa().build(model)
    init_params = functools.partial(saved_models.init_open_qa_model, model)
    self._create = jax.jit(lambda: nn.unbox(train_state.create(init_params, optimizer, seed=0)))
    self.train_step = jax.jit(make_train_step(objective, optimizer, seed=0), donate_argnums=0)
    self.encode_query = query_encoder(self.config, self.place)

  def new_state(self) -> train_state.TrainState:
    return self._create()

  def place(self, batch):
    """Splits a batch of numpy arrays over the devices."""
    return jax.device_put(batch, self._batch_sharding)


def random_questions(batch_size: int, vocab_size: int):
  """Yields batches of questions of random wordpieces."""
  rng = np.random.default_rng(0)
  while True:
    ids = rng.integers(5, vocab_size, (batch_size, QUERY_LENGTH)).astype(np.int32)
    ids[:, 0], ids[:, -1] = 2, 3
    query = Tokens(ids=ids, mask=ids != 0, segments=np.zeros_like(ids))
    index_B = np.arange(batch_size, dtype=np.int32)
    yield Questions(query=query, index_B=index_B, weights_B=np.ones(batch_size, np.float32)), {}


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--num_passages", type=int, default=20_958)
  parser.add_argument("--beam_size", type=int, default=5000)
  parser.add_argument("--batch_size", type=int, default=4)
  parser.add_argument("--joint_length", type=int, default=320)
  parser.add_argument("--num_layers", type=int, default=6)
  parser.add_argument("--hidden_size", type=int, default=384)
  parser.add_argument("--num_heads", type=int, default=12)
  parser.add_argument("--dtype", default="float32")
  parser.add_argument("--steps", type=int, default=2, help="steps in a row")
  parser.add_argument("--repetitions", type=int, default=5)
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()
  bert = BertConfig(
    vocab_size=4096,
    hidden_size=args.hidden_size,
    num_layers=args.num_layers,
    num_heads=args.num_heads,
    mlp_size=4 * args.hidden_size,
    dtype=args.dtype,
  )
  with tempfile.TemporaryDirectory() as directory:
    lengths = np.random.default_rng(0).integers(100, 289, args.num_passages)
    store = write_store(os.path.join(directory, "passages"), lengths)
    embeddings_NxE, _ = clustered_embeddings(
      num_passages=args.num_passages, size=128, num_queries=1
    )
    training = FinetuneTraining(bert)
    searcher = ExactSearcher(embeddings_NxE)
    loaded = LoadedGeneration(
      generation=0,
      searcher=searcher,
      training_step=0,
      created=0.0,
      embeddings_NxE=embeddings_NxE,
    )
    refresher = IndexRefresher(OneGeneration(searcher), config=RefreshConfig(), watch=False)
    refresher.first(wanted=0, stop=lambda: False)
    turns = Turns(training)
    beams = (NUM_READ, args.beam_size)
    for beam_size in beams:
      retriever = QuestionRetriever(
        encode_query=training.encode_query,
        loaded=loaded,
        store=store,
        config=BeamConfig(beam_size=beam_size, num_read=NUM_READ, joint_length=args.joint_length),
        max_span_width=10,
        matcher=EveryTenth(),
      )
      source = RetrievedBatches(
        random_questions(args.batch_size, bert.vocab_size),
        retriever=retriever,
        refresher=refresher,
        place=training.place,
        first_step=0,
        on_swap=lambda step, loaded: None,
        stop=lambda: False,
      )
      turns.add(beam_size, source)
    seconds = {beam_size: [] for beam_size in beams}
    for repetition in range(args.repetitions + 1):
      for beam_size in beams if repetition % 2 else beams[::-1]:
        measured = turns.seconds_per_step(beam_size, num_steps=args.steps)
        if repetition:  # the first one compiles and warms up
          seconds[beam_size].append(measured)

  small, large = (seconds[beam_size] for beam_size in beams)
  ratios = [b / a for a, b in zip(small, large, strict=True)]
  result = {
    "device": jax.devices()[0].device_kind,
    "cores": os.cpu_count(),
    "settings": vars(args),
    "step_seconds": {str(beam): round(statistics.median(seconds[beam]), 4) for beam in beams},
    "ratio": round(statistics.median(ratios), 3),
    "ratio_quartiles": [round(float(q), 3) for q in np.quantile(ratios, (0.25, 0.75))],
  }
  for beam in beams:
    print(f"step with a beam of {beam:5} {1000 * result['step_seconds'][str(beam)]:9.1f} ms")
  low, high = result["ratio_quartiles"]
  print(f"ratio {result['ratio']:.3f} (quartiles {low:.3f} to {high:.3f})")
  if args.output:
    with open(args.output, "w") as file:
      json.dump(result, file, indent=2)


if __name__ == "__main__":
  main()

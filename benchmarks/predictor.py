"""Seconds until an answer is given and explained, on one core: one text at a time, and batches.

python benchmarks/predictor.py --checkpoints=runs/demo/pretrain/checkpoints \
  --passages=runs/demo/passages --index=runs/demo/index --output=predictor.json

Without checkpoints it measures untrained models of a size over any corpus, with an index of random
embeddings: what is read takes as long.
python benchmarks/predictor.py --passages=runs/squad/passages --size=2x128 --passage_length=288
"""

import argparse
import functools
import json
import os
import statistics
import tempfile
import time

# Before JAX makes its threads.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np  # noqa: E402

from realm_jax.answering.open_answerer import open_answerer  # noqa: E402
from realm_jax.checkpoints.opening import Sources  # noqa: E402
from realm_jax.corpus.edits import Edits  # noqa: E402
from realm_jax.corpus.passage_store import PassageStore  # noqa: E402
from realm_jax.devices.datatypes import MASK  # noqa: E402
from realm_jax.index import publication  # noqa: E402
from realm_jax.index.searcher import SearcherConfig  # noqa: E402
from realm_jax.jobs.training.finetune import finetune  # noqa: E402
from realm_jax.jobs.training.pretrain import pretrain  # noqa: E402
from realm_jax.models.bert import BertConfig  # noqa: E402
from realm_jax.models.dual_encoder import DualEncoderConfig  # noqa: E402
from realm_jax.retrieval.question_retriever import BeamConfig  # noqa: E402
from realm_jax.retrieval.retriever import RetrievalConfig  # noqa: E402
from realm_jax.training.examples import MaskedQueryData, QuestionData  # noqa: E402
from realm_jax.training.finetuning import Finetuning  # noqa: E402
from realm_jax.training.pretraining import ModelConfig, Pretraining  # noqa: E402
from realm_jax.training.starting_points import StartConfig  # noqa: E402
from realm_jax.training.training_config import RunConfig  # noqa: E402

BATCH = 16


def untrained(root: str, *, passages: str, size: str, passage_length: int) -> list[str]:
  """Returns untrained checkpoints for masks and questions, made with an index unless there."""
  masks, questions = (os.path.join(root, name) for name in ("masks", "questions"))
  made = [os.path.join(workdir, "checkpoints") for workdir in (masks, questions)]
  if all(os.path.isdir(checkpoints) for checkpoints in made):
    return made
  layers, width = (int(part) for part in size.split("x"))
  store = PassageStore(passages)
  bert = BertConfig(
    vocab_size=store.metadata.vocab_size,
    hidden_size=width,
    num_layers=layers,
    num_heads=max(width // 64, 1),
    mlp_size=4 * width,
    dropout_rate=0.0,
  )
  query_length, joint_length = 32, passage_length + 32
  index = os.path.join(root, "index")
  embeddings_NxE = np.random.default_rng(0).normal(size=(len(store), 128)).astype(np.float32)
  publication.publish(
    index,
    embeddings_NxE,
    store=store,
    config=SearcherConfig().for_corpus(len(store)),
    queries=lambda: embeddings_NxE[:512],
    training_step=0,
    parameters_digest="random",
    keep=1,
  )
  shared = {"passages": passages, "index": index}
  untrained = RunConfig(num_steps=0)
  pretrain(
    **shared,
    workdir=masks,
    corpus=passages,
    pretraining=Pretraining(
      run=untrained,
      data=MaskedQueryData(query_length=query_length),
      model=ModelConfig(
        dual_encoder=DualEncoderConfig(bert=bert), knowledge_augmented_encoder=bert
      ),
      retrieval=RetrievalConfig(
        num_passages=6, passage_length=passage_length, joint_length=joint_length
      ),
      generation=0,
    ),
  )
  asked = os.path.join(root, "questions.jsonl")
  with open(asked, "w", encoding="utf-8") as file:
    answer = store.text(0).split()[0]
    file.write(json.dumps({"question": "What is it?", "answer": [answer]}) + "\n")
  finetune(
    **shared,
    workdir=questions,
    questions=asked,
    retriever=made[0],
    reader=made[0],
    finetuning=Finetuning(
      run=untrained,
      data=QuestionData(query_length=query_length),
      start=StartConfig(passage_encoder="trained"),
      beam=BeamConfig(beam_size=5, num_read=5, joint_length=joint_length),
    ),
  )
  return made


def seconds_of(ask, items) -> list[float]:
  """Returns the seconds that each item took."""
  seconds = []
  for item in items:
    started = time.perf_counter()
    ask(item)
    seconds.append(time.perf_counter() - started)
  return seconds


def measure(checkpoints: str, *, passages: str, index: str, num_texts: int, batches: int) -> dict:
  """Opens a model and asks it beginnings of passages."""
  started = time.perf_counter()
  sources = Sources(checkpoints=checkpoints, passages=passages, index=index)
  model = open_answerer(sources, history=4)
  opened = time.perf_counter()
  model.warm_up(max_texts=BATCH if batches else 1)
  warm = time.perf_counter()
  masked, ask = model.kind == "mask", model.explain
  store = model.corpus.store
  rows = np.random.default_rng(0).choice(len(store), size=BATCH * max(batches, 8), replace=False)
  texts = [" ".join([*store.text(row).split()[:5], MASK if masked else "?"]) for row in rows]
  edits = Edits().with_passage(0, model.corpus.write("Britain", "The pound is its currency."))
  one = texts[:num_texts]
  measured = {
    "one": seconds_of(lambda text: ask([text]), one),
    "one, with rankings": seconds_of(lambda text: ask([text], with_rankings=True), one),
    "one, corpus edited": seconds_of(lambda text: ask([text], edits=edits), one),
  }
  if batches:
    measured[f"batch of {BATCH}"] = seconds_of(
      ask, [texts[BATCH * i : BATCH * (i + 1)] for i in range(batches)]
    )
  return {
    "asked": "masks" if masked else "questions",
    "passages": len(store),
    "seconds_to_open": round(opened - started, 2),
    "seconds_to_warm_up": round(warm - opened, 2),
    "milliseconds": {
      name: {
        "median": round(1000 * statistics.median(seconds), 1),
        "p95": round(1000 * float(np.quantile(seconds, 0.95)), 1),
      }
      for name, seconds in measured.items()
    },
  }


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--checkpoints", help="of a pre-training or a fine-tuning")
  parser.add_argument("--passages", default="runs/demo/passages")
  parser.add_argument("--index", help="needed with --checkpoints")
  parser.add_argument("--size", default="2x128", help="layers x width of untrained models")
  parser.add_argument("--workdir", help="where they are kept; a temporary one by default")
  parser.add_argument("--passage_length", type=int, default=288, help="of untrained models")
  parser.add_argument("--texts", type=int, default=50)
  parser.add_argument("--batches", type=int, default=6, help=f"of {BATCH} texts")
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()

  run = functools.partial(
    measure, passages=args.passages, num_texts=args.texts, batches=args.batches
  )
  if args.checkpoints:
    results = [run(args.checkpoints, index=args.index)]
  else:
    with tempfile.TemporaryDirectory() as temporary:
      root = args.workdir or temporary
      made = untrained(
        root, passages=args.passages, size=args.size, passage_length=args.passage_length
      )
      results = [run(checkpoints, index=os.path.join(root, "index")) for checkpoints in made]
  for result in results:
    print(
      f"{result['asked']}, {result['passages']} passages, one core; opened in "
      f"{result['seconds_to_open']} s, warm after {result['seconds_to_warm_up']} s"
    )
    for name, figures in result["milliseconds"].items():
      print(f"  {name:20} median {figures['median']:7.1f} ms   p95 {figures['p95']:7.1f} ms")
  if args.output:
    with open(args.output, "w") as file:
      json.dump(results, file, indent=2)


if __name__ == "__main__":
  main()

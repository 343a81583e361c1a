"""Masked queries per second and core, from tagged text on disk to padded arrays.

The whole input pipeline of pre-training runs on one core: reading, salient span, tokenizer, mask,
padding, batch. The text is a tagged corpus, from `realm prepare_corpus`; without one,
Simple English Wikipedia where it lies beside the project, and otherwise the training sentences of
an almanac, both tagged by rules.

  python benchmarks/masking.py --output=masking.json
  python benchmarks/masking.py --corpus=TAGGED --vocabulary=VOCABULARY
"""

import argparse
import gzip
import itertools
import json
import os
import pathlib
import statistics
import tempfile
import time

import tensorflow as tf

from realm_jax.data import input_pipeline
from realm_jax.data.feature_converters import MaskedQueryConverter
from realm_jax.demo import world, writing
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.text import tokenization
from tasks import salient_span_masking

WIKIPEDIA = (
  pathlib.Path(__file__).resolve().parents[2] / "shared/data/corpus/simplewiki_2021.jsonl.gz"
)


def write_documents(directory: str, num_documents: int) -> tuple[str, str]:
  """Writes documents as JSON Lines; returns what they are and the file."""
  if WIKIPEDIA.exists():
    path = os.path.join(directory, "documents.jsonl")
    with gzip.open(WIKIPEDIA, "rt") as source, open(path, "w") as target:
      target.writelines(itertools.islice(source, num_documents))
    return WIKIPEDIA.name, path
  writing.write_world(world.make_world(seed=0), directory)
  return "almanac", os.path.join(directory, writing.TRAINING)


def tag_by_rules(directory: str, num_documents: int) -> tuple[str, str, str]:
  """Prepares a corpus; returns what it is, its directory and its vocabulary."""
  text, path = write_documents(directory, num_documents)
  vocabulary = os.path.join(directory, "vocabulary")
  with open(path) as file:
    texts = [json.loads(line)["text"] for line in file]
  tokenization.learn(lambda: texts, vocab_size=30_522).save(vocabulary)
  corpus = os.path.join(directory, "corpus")
  prepare_corpus(input=path, output=corpus, vocabulary=vocabulary)
  return text, corpus, vocabulary


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--corpus", help="directory of tagged examples")
  parser.add_argument("--vocabulary", help="directory of its vocabulary")
  parser.add_argument("--num_documents", type=int, default=3_000)
  parser.add_argument("--query_length", type=int, default=96)
  parser.add_argument("--max_masks", type=int, default=10)
  parser.add_argument("--batch_size", type=int, default=512)
  parser.add_argument("--batches", type=int, default=8, help="batches a repetition")
  parser.add_argument("--repetitions", type=int, default=9)
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()
  if bool(args.corpus) != bool(args.vocabulary):
    parser.error("give --corpus and --vocabulary together")

  core = max(os.sched_getaffinity(0))
  os.sched_setaffinity(0, {core})
  tf.config.threading.set_intra_op_parallelism_threads(1)
  tf.config.threading.set_inter_op_parallelism_threads(1)
  with tempfile.TemporaryDirectory() as directory:
    if args.corpus:
      text, corpus, vocabulary = args.corpus, args.corpus, args.vocabulary
    else:
      text, corpus, vocabulary = tag_by_rules(directory, args.num_documents)
    batches = input_pipeline.task_batches(
      salient_span_masking.register(corpus=corpus, vocabulary=vocabulary),
      converter=MaskedQueryConverter(),
      lengths={
        "query": args.query_length,
        "mlm_positions": args.max_masks,
        "mlm_targets": args.max_masks,
      },
      batch_size=args.batch_size,
      seed=0,
      training=True,
    )
    wordpieces = []
    seconds, cpu_seconds = [], []
    for repetition in range(args.repetitions + 1):
      start, cpu_start = time.perf_counter(), time.process_time()
      for batch in itertools.islice(batches, args.batches):
        wordpieces.append((batch["query"] > 0).sum(axis=1).mean())
      if repetition:  # the first one fills the shuffle buffer
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)

  examples = args.batches * args.batch_size
  result = {
    "settings": vars(args),
    "text": text,
    "wordpieces_per_query": round(float(statistics.mean(wordpieces)), 1),
    "masked_per_second_and_core": round(examples / statistics.median(seconds)),
    "masked_per_cpu_second": round(examples / statistics.median(cpu_seconds)),
  }
  print(f"{text}, queries of {result['wordpieces_per_query']} wordpieces, padded to", end=" ")
  print(args.query_length)
  print(f"masked queries per second and core  {result['masked_per_second_and_core']:6}")
  print(f"masked queries per second of CPU    {result['masked_per_cpu_second']:6}")
  if args.output:
    with open(args.output, "w") as file:
      json.dump(result, file, indent=2)


if __name__ == "__main__":
  main()

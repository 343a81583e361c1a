"""Mines pairs of queries and passages from spans that recur in a document."""

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import prepared_examples
from realm_jax.data.batches import Features
from realm_jax.foundations import atomic_files, object_store, progress
from realm_jax.pairs import found_pairs
from realm_jax.pairs.found_pairs import PairSettings
from realm_jax.pairs.recurring_spans import RecurringSpans
from realm_jax.runs.example_sources import PairData, pair_examples


def prepare_pairs(
  *,
  passages: str,
  output: str,
  data_streams: int = 1,
  settings: PairSettings = PairSettings(),
) -> prepared_examples.Manifest:
  """Writes `output`, which `realm train_retriever --examples=OUTPUT` trains on.

  Args:
    passages: Directory of a prepared corpus.
    output: Directory to write; replaced as a whole when finished.
    data_streams: Number of streams, the same as in training.
    settings: How many pairs to mine, and how many passages each has.

  Raises:
    FileNotFoundError: If the corpus is missing.
    ValueError: If no pairs are found.
  """
  object_store.check_local(output=output)
  prepared_examples.EXAMPLES.check(output)
  store = PassageStore(passages)
  finder = RecurringSpans(store, settings)
  chunks = finder.chunks()
  parts: list[Features] = []
  numbers = progress.track(
    range(len(chunks)), what="parts", fraction=lambda: len(parts) / len(chunks)
  )
  for number in numbers:
    found = finder.find(chunks[number], np.random.default_rng([settings.seed, number]))
    parts.append(found_pairs.features(found, settings, store.metadata))
  if not sum(len(part["query"]) for part in parts):
    raise ValueError(
      f"{passages} yields no pairs: no span recurs in a document; use another corpus"
    )
  pairs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
  order = np.random.default_rng(settings.seed).permutation(len(pairs["query"]))
  order = order[: settings.num_queries]
  data = PairData(pairs="recurring_spans", query_length=settings.query_length)
  described = pair_examples(data, source=output, store=store).settings()
  with atomic_files.new_directory(output, kind=prepared_examples.EXAMPLES) as directory:
    writer = prepared_examples.Writer(directory, vocab_size=store.metadata.vocab_size)
    for stream in range(data_streams):
      chosen = order[stream::data_streams]
      writer.write_stream([{name: rows[chosen] for name, rows in pairs.items()}])
    manifest = writer.finish(settings=described, order="shuffled", seed=settings.seed)
  right, wrong = ((pairs[name][order] >= 0).sum(axis=1).mean() for name in ("right", "wrong"))
  print(
    f"{output}: {len(order):,} queries with {right:.1f} right and {wrong:.1f} wrong passages each",
    flush=True,
  )
  return manifest

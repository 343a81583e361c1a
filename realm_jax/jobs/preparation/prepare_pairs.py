"""Mines pairs of queries and passages from spans that recur in a document."""

import io
import json
import os
import shutil

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import prepared_examples
from realm_jax.data.batches import Features
from realm_jax.foundations import atomic_files, object_store, progress
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.pairs import found_pairs
from realm_jax.pairs.found_pairs import PairSettings
from realm_jax.pairs.recurring_spans import RecurringSpans
from realm_jax.runs.example_sources import PairData, pair_examples

_SETTINGS_FILE = "settings.json"
_UNFINISHED = DirectoryKind(
  name="a directory of unfinished pairs", files=(_SETTINGS_FILE, "*.npz"), marks=(_SETTINGS_FILE,)
)


def prepare_pairs(
  *,
  passages: str,
  output: str,
  data_streams: int = 1,
  settings: PairSettings = PairSettings(),
) -> prepared_examples.Manifest:
  """Writes `output`, which `realm train_retriever --examples=OUTPUT` trains on.

  Unfinished results are kept in `OUTPUT.unfinished`; the same command resumes from there.

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
  unfinished = f"{output.rstrip('/')}.unfinished"
  _begin(unfinished, {"corpus": store.fingerprint, **vars(settings)})
  finder = RecurringSpans(store, settings)
  chunks = finder.chunks()
  parts: list[Features] = []
  numbers = progress.track(
    range(len(chunks)), what="parts", fraction=lambda: len(parts) / len(chunks)
  )
  for number in numbers:
    path = os.path.join(unfinished, f"{number:06d}.npz")
    if not os.path.exists(path):
      found = finder.find(chunks[number], np.random.default_rng([settings.seed, number]))
      _write(path, found_pairs.features(found, settings, store.metadata))
    with np.load(path) as kept:
      parts.append(dict(kept))
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
  shutil.rmtree(unfinished)
  right, wrong = ((pairs[name][order] >= 0).sum(axis=1).mean() for name in ("right", "wrong"))
  print(
    f"{output}: {len(order):,} queries with {right:.1f} right and {wrong:.1f} wrong passages each",
    flush=True,
  )
  return manifest


def _begin(directory: str, settings: dict) -> None:
  """Creates the directory of results, or empties it if its settings differ."""
  _UNFINISHED.check(directory)
  path = os.path.join(directory, _SETTINGS_FILE)
  content = json.dumps(settings, sort_keys=True)
  if os.path.exists(path):
    with open(path, encoding="utf-8") as file:
      if file.read() == content:
        return
    shutil.rmtree(directory)
  atomic_files.write_text(path, content)


def _write(path: str, arrays: Features) -> None:
  content = io.BytesIO()
  np.savez(content, allow_pickle=False, **arrays)
  atomic_files.write_bytes(path, content.getvalue())

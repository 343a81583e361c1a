"""Samples of what a training retrieves, as Markdown."""

from collections.abc import Iterable

import numpy as np

from realm_jax.corpus.passage_store import Passages
from realm_jax.devices.datatypes import RetrievedBatch
from realm_jax.text.wordpieces import WordPieces

SAMPLES = 4  # queries that are shown


def retrieved_samples(batch: RetrievedBatch, *, tokenizer: WordPieces, store: Passages) -> str:
  """Returns the first queries of a batch, their masked words, and tables of their passages."""
  queries, texts = batch.queries, []
  for row in range(min(SAMPLES, len(batch.passage_ids_BxK))):
    ids = np.asarray(queries.query.ids[row])[np.asarray(queries.query.mask[row])][1:-1]
    wanted = queries.mlm_targets_BxM[row][queries.mlm_weights_BxM[row] > 0]
    passages = zip(batch.passage_ids_BxK[row].tolist(), batch.stale_scores_BxK[row], strict=True)
    texts.append(table(tokenizer.decode(ids), tokenizer.decode(wanted), passages, store=store))
  return "\n\n".join(texts)


def table(
  query: str, answer: str, passages: Iterable[tuple[int, float]], *, store: Passages
) -> str:
  """Returns Markdown: a query, its answer, and its passages except those with negative ids."""
  lines = [f"**{_plain(query)}** ({_plain(answer)})", "", "| score | passage |", "|---:|---|"]
  for passage_id, score in passages:
    if passage_id >= 0:
      text = f"{store.title(passage_id)}: {store.text(passage_id)}"
      by = "posterior" if np.isneginf(score) else f"{score:.2f}"
      lines.append(f"| {by} | {_plain(text)} |")
  return "\n".join(lines)


def _plain(text: str) -> str:
  """Escapes characters that are special in Markdown or HTML."""
  for sign in "\\&|*_<>`[]":
    text = text.replace(sign, f"\\{sign}" if sign in "\\|*_`[]" else f"&#{ord(sign)};")
  return " ".join(text.split())

"""The words of a passage store, indexed once and kept in its directory."""

import os

from realm_jax.corpus.passage_store import PassageStore, titled_text
from realm_jax.index.bm25 import Bm25Retriever
from realm_jax.index.postings import Postings, open_or_build


def open_bm25(store: PassageStore) -> Bm25Retriever:
  """Opens BM25 over the passages."""
  return Bm25Retriever([open_postings(store)])


def open_postings(store: PassageStore) -> Postings:
  """Opens the terms of the passages, titles included."""
  return open_or_build(
    os.path.join(store.local_directory, "bm25"),
    lambda: (titled_text(store, row) for row in range(len(store))),
    identity=store.fingerprint,
    languages=store.metadata.languages,
  )

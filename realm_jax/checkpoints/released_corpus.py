"""Converts released passages to a passage store, and their embeddings to generation 0."""

import itertools
import os
from collections.abc import Iterable, Iterator

import numpy as np

from realm_jax.checkpoints.formats import tensorflow_files
from realm_jax.corpus.passage_store import CORPUS, PassageStore, PassageStoreWriter, passage_uid
from realm_jax.devices import directory_lock
from realm_jax.foundations import atomic_files, progress
from realm_jax.index import generations, publication
from realm_jax.index.searcher import SearcherConfig
from realm_jax.text.tokenization import WordPieceTokenizer

_PASSAGES_AT_ONCE = 1024
_NUM_QUERIES = 512  # passages used as queries to measure the index


def write_store(
  directory: str,
  *,
  blocks: str,
  titles: str | None,
  tokenizer: WordPieceTokenizer,
  passage_length: int,
) -> PassageStore:
  """Writes the passage store of released texts, row i from record i; the titles may be missing."""
  texts = tensorflow_files.read_records(blocks)
  names = itertools.repeat(b"") if titles is None else tensorflow_files.read_records(titles)
  with atomic_files.new_directory(directory, kind=CORPUS) as unfinished:
    writer = PassageStoreWriter(unfinished, tokenizer=tokenizer, max_passage_length=passage_length)
    pairs = _pairs(texts, names, many=titles is not None)
    for batch in progress.track(_batches(pairs), what="passages", size=len):
      _append(writer, batch, tokenizer)
    metadata = writer.finish(counts={})
    if not metadata.num_passages:
      raise ValueError(f"no text in {blocks}")
    tokenizer.save(os.path.join(unfinished, "vocabulary"))
  return PassageStore(directory)


def publish_embeddings(
  index: str,
  embeddings_NxE: np.ndarray,
  *,
  store: PassageStore,
  embedding_size: int,
  searcher: SearcherConfig,
  parameters_digest: str,
) -> None:
  """Publishes released embeddings, a row for each passage, as generation 0 of a new index.

  Raises:
    ValueError: If the embeddings do not fit the passages or the model.
  """
  if embeddings_NxE.shape != (len(store), embedding_size):
    raise ValueError(
      f"embeddings {embeddings_NxE.shape} for {len(store)} passages and a model of width "
      f"{embedding_size}; give the blocks that the embeddings were made from"
    )
  embeddings_NxE = np.asarray(embeddings_NxE, np.float32)
  sample = np.random.default_rng(0).permutation(len(store))[:_NUM_QUERIES]
  with directory_lock.hold(index, kind=generations.INDEX):
    publication.check_corpus(index, store)
    publication.publish(
      index,
      embeddings_NxE,
      store=store,
      config=searcher.for_corpus(len(store)),
      queries=lambda: embeddings_NxE[sample],
      training_step=0,
      parameters_digest=parameters_digest,
      keep=1,
    )


def _pairs(texts: Iterable[bytes], titles: Iterable[bytes], *, many: bool):
  titles = iter(titles)
  count = 0
  for count, text in enumerate(texts, start=1):
    title = next(titles, None)
    if title is None:
      raise ValueError(f"text {count} has no title; give the two files of one release")
    yield title.decode(), text.decode()
  if many and next(titles, None) is not None:
    raise ValueError(f"more titles than the {count} texts; give the two files of one release")


def _batches(items: Iterable) -> Iterator[list]:
  items = iter(items)
  while batch := list(itertools.islice(items, _PASSAGES_AT_ONCE)):
    yield batch


def _append(writer: PassageStoreWriter, batch, tokenizer: WordPieceTokenizer) -> None:
  titles, texts = zip(*batch, strict=True)
  ids = zip(tokenizer.encode_batch(titles), tokenizer.encode_batch(texts), strict=True)
  for title, text, (title_ids, body_ids) in zip(titles, texts, ids, strict=True):
    writer.append(
      title=title, text=text, title_ids=title_ids, body_ids=body_ids, uid=passage_uid(title, text)
    )

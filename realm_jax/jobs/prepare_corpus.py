"""Turns raw documents into a passage store and tagged examples."""

import os
from collections import Counter

from realm_jax import atomic_files, tokenization
from realm_jax.corpus import documents, passages
from realm_jax.corpus.passage_store import PassageStoreWriter, StoreMetadata
from realm_jax.data.salient_spans import find_salient_spans
from realm_jax.data.tagged_examples import TaggedExampleWriter
from realm_jax.jobs import progress


def prepare_corpus(
  *,
  input: str,
  output: str,
  vocabulary: str,
  max_passage_length: int = 288,
  max_sentences: int | None = None,
  num_shards: int = 8,
) -> StoreMetadata:
  """Writes `output`: a passage store, with the same passages as tagged examples beside its columns.

  The same input gives the same bytes. A document that brings `spans` keeps them; any other is
  tagged by rules (dates, numbers, capitalised names).

  Args:
    input: glob pattern of JSON Lines files with `id`, `title`, `text`, plain or gzip.
    output: directory to write; replaced as a whole when finished.
    vocabulary: directory with `vocab.txt`.
    max_passage_length: wordpieces of a passage at most, title and three special tokens included.
    max_sentences: sentences of a passage at most; none: as many as fit.
    num_shards: files of tagged examples.

  Returns:
    The metadata of the store.

  Raises:
    FileNotFoundError: if no input or no vocabulary is there.
    ValueError: if the input holds no text.
  """
  tokenizer = tokenization.load(vocabulary)
  counts: Counter = Counter()
  with atomic_files.new_directory(output) as directory:
    store = PassageStoreWriter(
      directory, tokenizer=tokenizer, max_passage_length=max_passage_length
    )
    examples = TaggedExampleWriter(directory, num_shards=num_shards)
    stream = passages.make_passages(
      documents.read_jsonl(input, counts=counts),
      tokenizer=tokenizer,
      tag=find_salient_spans,
      max_passage_length=max_passage_length,
      max_sentences=max_sentences,
      counts=counts,
    )
    for passage in progress.track(stream, what="passages"):
      store.append(
        title=passage.title,
        text=passage.text,
        title_ids=passage.title_ids,
        body_ids=passage.body_ids,
        uid=passage.uid,
      )
      examples.append(
        title=passage.title,
        text=passage.text,
        uid=passage.uid,
        sentences=passage.sentences,
        spans=passage.spans,
      )
    examples.close()
    if not counts["passages"]:
      raise ValueError(f"no text in {input!r}: {_report(counts)}")
    metadata = store.finish(counts=counts)
    tokenizer.save(os.path.join(directory, "vocabulary"))
  print(f"{output}: {_report(counts)}", flush=True)
  return metadata


def _report(counts: Counter) -> str:
  return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(counts.items()))

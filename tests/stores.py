"""Passage stores of a few passages."""

import os

from realm_jax.corpus.passage_store import Passage, PassageStore, PassageStoreWriter


def write_store(directory, passages, *, tokenizer, max_passage_length=32):
  """Writes passages and their vocabulary into an empty directory; returns the store.

  Args:
    passages: Texts, or fields of `Passage` that are not an empty title, the ids of the text, and
      the number of the passage from 1.
  """
  tokenizer.save(os.path.join(directory, "vocabulary"))
  writer = PassageStoreWriter(directory, tokenizer=tokenizer, max_passage_length=max_passage_length)
  for uid, given in enumerate(passages, 1):
    fields = {"text": given} if isinstance(given, str) else given
    if "body_ids" not in fields:
      fields = {**fields, "body_ids": tokenizer.encode(fields["text"])}
    writer.append(Passage(**{"title": "", "uid": uid, **fields}))
  writer.finish(counts={})
  return PassageStore(os.fspath(directory))

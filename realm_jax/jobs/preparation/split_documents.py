"""Divides documents into those to learn from and those that are held out."""

import itertools
import json
import os
import random
import re
from collections.abc import Iterator, Sequence

from realm_jax import atomic_files, object_store
from realm_jax.corpus import reading
from realm_jax.corpus.documents import BadRecords, Document
from realm_jax.corpus.input_files import Format, InputFile, find_files

_PARTS = {"knowledge": (False, True), "training": (False,), "held_out": (True,)}


def split_documents(
  *,
  inputs: Sequence[str],
  output: str,
  held_out: Sequence[float] = (0.05,),
  held_out_ids: str | None = None,
  every: Sequence[int] = (1,),
  seed: int = 0,
  format: Format = "auto",
) -> dict[str, int]:
  """Writes `output`: `training.jsonl`, `held_out.jsonl`, and both together as `knowledge.jsonl`.

  Evaluate on held-out documents: search them, but never train on them. Documents are in random
  order, so any first part of a file is a sample of it. Consecutive documents with the same title,
  the paragraphs of an article, stay together. All documents have to fit into memory.

  Args:
    inputs: Glob patterns or directories of files that `realm prepare_corpus` can read.
    output: Directory to write; replaced as a whole when finished.
    held_out: Share of the articles to hold out: one for all inputs, or one for each.
    held_out_ids: Regular expression; articles with a document whose whole id it matches are held
      out as well.
    every: Uses only every n-th article: one number for all inputs, or one for each.
    seed: Seeds the order and the choice of held-out articles.
    format: Format of the inputs; "auto" infers it from the file names.

  Returns:
    The number of documents in each file.

  Raises:
    FileNotFoundError: If a pattern matches no file.
    ValueError: If a setting or the format of a file is invalid, or one of the parts is empty.
  """
  object_store.check_local(output=output)
  shares, strides = _for_each(inputs, held_out=held_out), _for_each(inputs, every=every)
  for share, stride in zip(shares, strides, strict=True):
    if not 0 <= share < 1 or stride < 1:
      raise ValueError(
        f"held_out={share} and every={stride}; give shares of at least 0 and less than 1, and "
        "numbers of at least 1"
      )
  try:
    matched = re.compile(held_out_ids or r"(?!)")
  except re.error as error:
    raise ValueError(f"held_out_ids={held_out_ids!r} is no regular expression: {error}") from error
  found = find_files(inputs, format=format)
  rng = random.Random(seed)
  bad = BadRecords()
  articles: list[tuple[bool, list[Document]]] = []
  for files, share, stride in zip(found, shares, strides, strict=True):
    for article in itertools.islice(_articles(files, bad), 0, None, stride):
      drawn = share > 0 and rng.random() < share
      articles.append((drawn or any(matched.fullmatch(doc.id) for doc in article), article))
  for line in bad.report():
    print(line, flush=True)
  rng.shuffle(articles)
  if len({is_held_out for is_held_out, _ in articles}) < 2:
    raise ValueError(
      f"{', '.join(inputs)}: {len(articles)} articles leave nothing to learn from or nothing held "
      f"out; change held_out={','.join(map(str, held_out))}"
    )
  sizes = {}
  with atomic_files.new_directory(output) as directory:
    for part, wanted in _PARTS.items():
      chosen = [
        doc for is_held_out, article in articles if is_held_out in wanted for doc in article
      ]
      with open(os.path.join(directory, f"{part}.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(map(_line, chosen))
        atomic_files.close(file)
      sizes[part] = len(chosen)
  learned = f"{sizes['training']:,} documents to learn from, {sizes['held_out']:,} held out"
  skipped = f", {bad.counts.total():,} records skipped" if bad.counts else ""
  print(f"{output}: {learned}{skipped}", flush=True)
  return sizes


def _for_each(inputs: Sequence[str], **setting: Sequence) -> Sequence:
  """Returns one value for each input."""
  ((name, values),) = setting.items()
  if len(values) not in (1, len(inputs)):
    raise ValueError(
      f"{name}={','.join(map(str, values))} with {len(inputs)} inputs; give one value, or one each"
    )
  return values if len(values) == len(inputs) else [values[0]] * len(inputs)


def _articles(files: Sequence[InputFile], bad: BadRecords) -> Iterator[list[Document]]:
  """Yields consecutive documents with the same title; each without a title by itself."""
  documents = reading.read_documents(files, bad=bad)
  for title, group in itertools.groupby(documents, key=lambda document: document.title):
    article = list(group)
    yield from [article] if title else ([document] for document in article)


def _line(document: Document) -> str:
  fields = {"id": document.id, "title": document.title, "text": document.text}
  spans = {} if document.spans is None else {"spans": document.spans}
  return json.dumps({**fields, **spans}, ensure_ascii=False) + "\n"

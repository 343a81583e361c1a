"""Divides documents into those to learn from and those that are held out.

realm benchmarks/split_documents.py --inputs=documents.jsonl --output=split
"""

import json
import os
import random
import re
from collections.abc import Iterable, Sequence

from realm_jax.corpus import reading
from realm_jax.corpus.documents import BadRecords, Document
from realm_jax.corpus.input_files import Format, find_files
from realm_jax.foundations import atomic_files, object_store
from realm_jax.foundations.output_kinds import DirectoryKind

_PARTS = {"knowledge": (False, True), "training": (False,), "held_out": (True,)}
_FILES = tuple(f"{part}.jsonl" for part in _PARTS)
_SPLIT = DirectoryKind(name="a division of documents", files=_FILES)


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
  order, so any first part of a file is a sample of it. Documents of an input with the same title,
  the paragraphs of an article, stay together. Articles that share a title or a document id, also
  of different inputs, are held out together or not at all; titles are compared without case, and
  with underscores as spaces. All documents have to fit into memory.

  Args:
    inputs: Glob patterns or directories of files that `realm prepare_corpus` can read.
    output: Directory to write; replaced as a whole when finished.
    held_out: Share of the articles to hold out: one for all inputs, or one for each. Of articles
      that belong together the first decides.
    held_out_ids: Regular expression; articles with a document whose whole id it matches are held
      out as well.
    every: Uses only every n-th article of an input: one number for all inputs, or one for each.
    seed: Seeds the order and the choice of held-out articles.
    format: Format of the inputs; "auto" infers it from the file names.

  Returns:
    The number of documents in each file.

  Raises:
    FileNotFoundError: If a pattern matches no file.
    ValueError: If a setting or the format of a file is invalid, `held_out_ids` matches no id, or
      one of the parts is empty.
  """
  object_store.check_local(output=output)
  _SPLIT.check(output)
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
  articles: list[list[Document]] = []
  share_of: list[float] = []
  num_matches = 0
  for files, share, stride in zip(found, shares, strides, strict=True):
    of_input = _articles(reading.read_documents(files, bad=bad))
    num_matches += sum(bool(matched.fullmatch(doc.id)) for docs in of_input for doc in docs)
    articles += (used := of_input[::stride])
    share_of += [share] * len(used)
  for line in bad.report():
    print(line, flush=True)
  named = [sum(bool(matched.fullmatch(doc.id)) for doc in docs) for docs in articles]
  if held_out_ids is not None:
    if not num_matches:
      raise ValueError(f"held_out_ids={held_out_ids!r} matches none of the ids of the documents")
    print(f"held_out_ids matches {num_matches:,} documents, {sum(named):,} in use", flush=True)
  families = _families(articles)
  chosen = {first for first in families if share_of[first] > 0 and rng.random() < share_of[first]}
  chosen |= {first for first, members in families.items() if any(named[i] for i in members)}
  held_out_articles = {i for first in chosen for i in families[first]}
  is_held_out = [i in held_out_articles for i in range(len(articles))]
  if len(set(is_held_out)) < 2:
    raise ValueError(
      f"{', '.join(inputs)}: {len(articles)} articles leave nothing to learn from or nothing held "
      f"out; change held_out={','.join(map(str, held_out))}"
    )
  order = rng.sample(range(len(articles)), len(articles))
  sizes = {}
  with atomic_files.new_directory(output, kind=_SPLIT) as directory:
    for part, wanted in _PARTS.items():
      documents = [doc for i in order if is_held_out[i] in wanted for doc in articles[i]]
      with open(os.path.join(directory, f"{part}.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(map(_line, documents))
        atomic_files.close(file)
      sizes[part] = len(documents)
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


def _articles(documents: Iterable[Document]) -> list[list[Document]]:
  """Groups documents by title; each without a title is an article by itself."""
  articles: dict[object, list[Document]] = {}
  for document in documents:
    articles.setdefault(_title(document) or object(), []).append(document)
  return list(articles.values())


def _title(document: Document) -> str:
  return document.title.replace("_", " ").strip().casefold()


def _families(articles: Sequence[Sequence[Document]]) -> dict[int, list[int]]:
  """Groups articles linked by titles or ids, over any number of steps, by their first article."""
  members: dict[tuple[str, str], list[int]] = {}
  for i, docs in enumerate(articles):
    for key in _keys(docs):
      members.setdefault(key, []).append(i)
  families: dict[int, list[int]] = {}
  seen: set[int] = set()
  for first in range(len(articles)):
    if first in seen:
      continue
    seen.add(first)
    family = families[first] = [first]
    for i in family:  # grows while it is read
      for key in _keys(articles[i]):
        linked = [j for j in members.pop(key, ()) if j not in seen]
        seen.update(linked)
        family += linked
  return families


def _keys(article: Sequence[Document]) -> set[tuple[str, str]]:
  titles = {("title", title) for doc in article if (title := _title(doc))}
  return titles | {("id", doc.id) for doc in article}


def _line(document: Document) -> str:
  fields = {"id": document.id, "title": document.title, "text": document.text}
  spans = {} if document.spans is None else {"spans": document.spans}
  return json.dumps({**fields, **spans}, ensure_ascii=False) + "\n"

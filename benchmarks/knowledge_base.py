"""What a knowledge base costs, beside bm25s and FAISS on the same passages.

Passages are windows of a corpus, so many words long that it has as many as are asked for. Each is a
document. A question counts as found if a window of its own document is among the first ten. bm25s
has no additions or deletions, so for one it indexes its terms, which it has in memory, anew. With
an encoder FAISS searches embeddings of the same encoder, exactly as the knowledge base does, and
its first hundred passages and those of bm25s are fused by reciprocal rank. With --encoder=random
embeddings are drawn, 384 numbers a text, so that times are those of searching without a model, and
recall says nothing. Every phase has a process of its own, whose peak memory includes the pages of
mapped files.

  python benchmarks/knowledge_base.py --corpus PASSAGES.jsonl.gz WIKI.jsonl.gz \\
    --questions QUESTIONS.jsonl.gz --sizes 1000 100000 1000000
"""

import argparse
import collections
import concurrent.futures
import gzip
import importlib.util
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import realm_jax

_K, _FUSED, _QUESTIONS, _CHANGES = 10, 100, 500, 20
_SPAWN = multiprocessing.get_context("spawn")


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
  start = time.perf_counter()
  result = call()
  return time.perf_counter() - start, result


class RandomEncoder:
  """Embeds at random, the same text always as the same vector of length 1."""

  def passages(self, passages: Sequence[tuple[str, str]]) -> np.ndarray:
    drawn = (np.random.default_rng(zlib.crc32(text.encode())) for _, text in passages)
    rows = [draw.standard_normal(384, np.float32) for draw in drawn]
    vectors = np.stack(rows) if rows else np.zeros((0, 384), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

  def question(self, text: str) -> np.ndarray:
    return self.passages([("", text)])[0]


def use_random_encoder() -> None:
  """Lets knowledge bases of this process embed at random."""
  from realm_jax.knowledge_base import folder, models

  models.copy_encoder = lambda directory, source: "0" * 16
  folder.encoder = lambda directory, name: RandomEncoder()


class Ours:
  """A knowledge base."""

  needs = ()

  def __init__(self, directory: pathlib.Path, encoder: str | None):
    self._path, self._encoder = directory / "base", encoder
    self._base = realm_jax.KnowledgeBase  # imported here, so that no time includes it

  def build(self, passages: str) -> dict[str, float]:
    found = {}
    found["create"], base = timed(
      lambda: self._base.create(self._path, passages, language="en", encoder=self._encoder)
    )
    new = [{"id": f"new {n}", "text": f"An addition of {n} words."} for n in range(_CHANGES)]
    found["add one"] = statistics.median(timed(lambda d=d: base.add([d]))[0] for d in new)
    with open(passages, encoding="utf-8") as file:
      old = [json.loads(line)["id"] for line in collections.deque(file, maxlen=_CHANGES)]
    found["delete one"] = statistics.median(timed(lambda id=id: base.delete(id))[0] for id in old)
    return found

  def open(self) -> Callable[[str], list[str]]:
    base = self._base(self._path)
    return lambda question: [hit.id for hit in base.search(question, k=_K)]

  def compact(self) -> None:
    self._base(self._path).compact()


class Bm25s:
  """An index of bm25s, saved with its passages."""

  needs = ("bm25s",)

  def __init__(self, directory: pathlib.Path, encoder: str | None):
    import bm25s
    import Stemmer

    del encoder
    self._bm25s, self._path = bm25s, directory / "bm25s"
    self._stemmer = Stemmer.Stemmer("english")

  def build(self, passages: str) -> dict[str, float]:
    creating, _ = timed(lambda: self._create(passages))
    adding, _ = timed(self._add_one)
    return {"create": creating, "add one": adding, "delete one": adding}

  def _create(self, passages: str) -> None:
    with open(passages, encoding="utf-8") as file:
      self._rows = [json.loads(line) for line in file]
    self._terms = self._analyzed([f"{row['title']}\n{row['text']}" for row in self._rows])
    self._index()

  def _add_one(self) -> None:
    self._index()

  def _index(self) -> None:
    index = self._bm25s.BM25(backend="auto")
    index.index(self._terms, show_progress=False)
    index.save(str(self._path), corpus=self._rows)

  def _analyzed(self, texts: list[str], **options: Any) -> Any:
    return self._bm25s.tokenize(
      texts, stopwords="en", stemmer=self._stemmer, show_progress=False, **options
    )

  def open(self) -> Callable[[str], list[str]]:
    self._opened = self._bm25s.BM25.load(str(self._path), mmap=True, load_corpus=True)
    return lambda question: [row["id"] for row in self._best(question, _K)]

  def _best(self, question: str, k: int) -> list[dict]:
    k = min(k, self._opened.scores["num_docs"])
    (found,), _ = self._opened.retrieve(
      self._analyzed([question], return_ids=False), k=k, show_progress=False
    )
    return list(found)


class Bm25sFaiss(Bm25s):
  """The same, fused with FAISS on embeddings by the encoder of a knowledge base."""

  needs = ("bm25s", "faiss")

  def __init__(self, directory: pathlib.Path, encoder: str | None):
    import faiss

    from realm_jax.knowledge_base import folder, models

    assert encoder is not None
    super().__init__(directory, encoder)
    self._faiss, self._file = faiss, str(directory / "faiss")
    name = models.copy_encoder(str(directory), encoder)
    self._encoder = folder.encoder(str(directory), name)

  def _create(self, passages: str) -> None:
    super()._create(passages)
    embeddings = self._encoder.passages([(row["title"], row["text"]) for row in self._rows])
    self._flat = self._faiss.IndexFlatIP(embeddings.shape[1])
    self._flat.add(embeddings)
    self._faiss.write_index(self._flat, self._file)

  def _add_one(self) -> None:
    super()._add_one()
    self._flat.add(self._encoder.passages([("", "An addition of a few words.")]))
    self._faiss.write_index(self._flat, self._file)

  def open(self) -> Callable[[str], list[str]]:
    super().open()
    flat = self._faiss.read_index(self._file)
    ids = [row["id"] for row in self._opened.corpus]

    def search(question: str) -> list[str]:
      _, ((*rows,),) = flat.search(self._encoder.question(question)[None], _FUSED)
      scores: collections.Counter[str] = collections.Counter()
      words = [row["id"] for row in self._best(question, _FUSED)]
      for ranked in (words, [ids[row] for row in rows if row < len(ids)]):
        scores.update({id: 1 / (60 + rank) for rank, id in enumerate(ranked)})
      return [id for id, _ in scores.most_common(_K)]

    return search


LEXICAL = {"realm_jax": Ours, "bm25s": Bm25s}
WITH_ENCODER = {"realm_jax, encoder": Ours, "bm25s and FAISS": Bm25sFaiss}
SYSTEMS = {**LEXICAL, **WITH_ENCODER}


def searches(system, questions: list[dict]) -> dict[str, float]:
  """Returns how fast an opened system searches, and what it finds."""
  opening, search = timed(system.open)
  first, _ = timed(lambda: search(questions[0]["question"]))
  seconds, found = [], 0
  for question in questions:
    spent, ids = timed(lambda question=question: search(question["question"]))
    seconds.append(spent)
    found += any(id.rpartition("/")[0] == question["passage_id"] for id in ids)
  p95 = statistics.quantiles(seconds, n=20)[-1]
  rest = {"p50": statistics.median(seconds), "p95": p95, "recall@10": found / len(questions)}
  return {"open": opening, "first search": first, **rest}


def phase(
  name: str, system_name: str, directory: pathlib.Path, encoder: str | None, given: Any
) -> dict[str, float]:
  """Returns the figures of one phase, with its peak memory in MiB."""
  if encoder == "random":
    use_random_encoder()
  system = SYSTEMS[system_name](directory, encoder)
  if name == "build":
    found = system.build(given)
  elif name == "search":
    found = searches(system, given)
  else:
    found = {"compact": timed(system.compact)[0]}
  (peak,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
  return {**found, f"{name}, MiB": int(peak.split()[1]) / 1024}


def measured(
  system: str,
  directory: pathlib.Path,
  *,
  encoder: str | None,
  passages: str,
  questions: list[dict],
) -> dict[str, float]:
  """Returns all figures of a system."""
  found = {}
  phases = {"build": passages, "search": questions}
  if hasattr(SYSTEMS[system], "compact"):
    phases["compact"] = None
  for name, given in phases.items():
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=_SPAWN) as process:
      found |= process.submit(phase, name, system, directory, encoder, given).result()
  files = [path for path in directory.rglob("*") if path.is_file()]
  return {**found, "disk, MiB": sum(path.stat().st_size for path in files) / 2**20}


def windows(paths: Iterable[str], *, words: int) -> Iterator[dict]:
  """Yields the documents of JSON Lines, cut into windows of so many words."""
  for path in paths:
    with gzip.open(path, "rt", encoding="utf-8") as file:
      for line in file:
        document = json.loads(line)
        text = document["text"].split()
        for number, first in enumerate(range(0, len(text), words)):
          window = " ".join(text[first : first + words])
          yield {
            "id": f"{document['id']}/{number}",
            "title": document["title"],
            "text": window,
          }


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--corpus", nargs="+", required=True, help="JSON Lines, gzipped")
  parser.add_argument("--questions", required=True, help="with `question` and `passage_id`")
  parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 100_000, 1_000_000])
  parser.add_argument("--words", type=int, default=36, help="of a passage")
  parser.add_argument("--encoder", help="directory, or random; only realm_jax and bm25s without")
  asked = parser.parse_args()
  systems = [
    name
    for name, system in (SYSTEMS if asked.encoder else LEXICAL).items()
    if all(map(importlib.util.find_spec, system.needs))
  ]
  with gzip.open(asked.questions, "rt", encoding="utf-8") as file:
    questions = [json.loads(line) for line in file]
  for size in asked.sizes:
    with tempfile.TemporaryDirectory(prefix="realm_knowledge_base_") as scratch:
      ids, passages = set(), os.path.join(scratch, "passages.jsonl")
      with open(passages, "w", encoding="utf-8") as file:
        rows = itertools.islice(windows(asked.corpus, words=asked.words), size)
        for number, row in enumerate(rows):
          if number < size - _CHANGES:  # the others are deleted
            ids.add(row["id"].rpartition("/")[0])
          file.write(json.dumps(row) + "\n")
      there = [question for question in questions if question["passage_id"] in ids]
      there = random.Random(0).sample(there, min(_QUESTIONS, len(there)))
      table = {}
      for system in systems:
        directory = pathlib.Path(scratch, "of", system)
        directory.mkdir(parents=True)
        encoder = asked.encoder if system in WITH_ENCODER else None
        table[system] = measured(
          system, directory, encoder=encoder, passages=passages, questions=there
        )
    print(f"\n| {size:,} passages | {' | '.join(table)} |\n|{'---|' * (1 + len(table))}")
    for row in table["realm_jax"]:
      cells = (f"{found[row]:,.4g}" if row in found else "" for found in table.values())
      print(f"| {row} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
  main()

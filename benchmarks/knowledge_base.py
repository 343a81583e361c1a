"""What a knowledge base costs, beside bm25s, tantivy and FAISS on the same passages.

Passages are windows of a corpus, so many words long that it has as many as are asked for. Each is a
document with a year; the filter leaves a quarter of them. A question counts as found if a window of
its own document is among the first ten. tantivy indexes the terms and pairs of words that the
knowledge base does. bm25s has no additions, deletions or filters, so for a change it indexes its
terms, which it has in memory, anew.

With --embeddings, a file of NumPy with a row for each passage and one for each question, a
knowledge base fuses them with words, and FAISS reads 32 of 2 sqrt(N) cells and is fused with bm25s
by reciprocal rank; no time includes embedding. `agreement` is the share of the first ten passages
of a search of all embeddings that the search has, `found - exact` the difference in recall with its
95 % interval.

Every phase has a process of its own, whose peak memory includes the pages of mapped files, and
searches one question at a time. What was built stays in --directory and is not built again.

  python benchmarks/knowledge_base.py --corpus PASSAGES.jsonl.gz WIKI.jsonl.gz \\
    --questions QUESTIONS.jsonl.gz --directory=scratch --sizes 1000 100000 1000000 \\
    --embeddings=PASSAGES.npy --question_embeddings=QUESTIONS.npy
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import importlib.util
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import measuring
import numpy as np
from measuring import read, timed

import realm_jax

_K, _FUSED, _QUESTIONS, _CHANGES, _PROBES = 10, 100, 1000, 20, 32
_YEARS = {"gte": 1910, "lt": 1940}
_SPAWN = multiprocessing.get_context("spawn")


@dataclasses.dataclass(frozen=True)
class Collection:
  """Passages in a file, questions, and files of the embeddings of both."""

  passages: str
  questions: str
  embeddings: str | None
  question_embeddings: str | None

  def encoder(self) -> "Stored":
    return Stored(self)


class Stored:
  """An encoder that has embedded the passages and questions of a collection before."""

  def __init__(self, collection: Collection):
    self._rows: dict[int, int] = {}
    self._collection = collection
    assert collection.embeddings and collection.question_embeddings
    self._passages_NxE = np.load(collection.embeddings, mmap_mode="r")
    questions = [row["question"] for row in read(collection.questions)]
    self._questions = dict(zip(questions, np.load(collection.question_embeddings), strict=True))

  def passages(self, passages: Sequence[tuple[str, str]]) -> np.ndarray:
    if not self._rows:
      rows = enumerate(read(self._collection.passages))
      self._rows = {hash((row["title"], row["text"])): number for number, row in rows}
    rows = [self._rows.get(hash(tuple(passage)), 0) for passage in passages]
    return np.asarray(self._passages_NxE[rows], np.float32)

  def question(self, text: str) -> np.ndarray:
    return self._questions[text]


def changed(
  passages: str, add: Callable[[dict], object], delete: Callable[[str], object]
) -> dict[str, float]:
  """Returns how long an addition takes, and a deletion of one of the last passages."""
  new = [{"id": f"new {n}", "text": f"An addition of {n} words."} for n in range(_CHANGES)]
  old = [row["id"] for row in collections.deque(read(passages), maxlen=_CHANGES)]
  taken = {
    f"{name} one, ms": statistics.median(timed(lambda x=x, change=change: change(x))[0] for x in of)
    for name, change, of in (("add", add, new), ("delete", delete, old))
  }
  return {name: 1e3 * seconds for name, seconds in taken.items()}


class Ours:
  """A knowledge base."""

  needs, encodes = (), False

  def __init__(self, directory: pathlib.Path, collection: Collection):
    self._path, self._collection = directory / "base", collection
    if self.encodes:
      from realm_jax.knowledge_base import folder
      from realm_jax.knowledge_base.encoders import models

      encoder = collection.encoder()
      models.copy_model = lambda directory, source, reads: "0" * 16
      folder.Folder.encoder = lambda self, name: encoder

  def build(self) -> dict[str, float]:
    passages, found = self._collection.passages, {}
    encoder = "stored" if self.encodes else None
    found["create, s"], base = timed(
      lambda: realm_jax.KnowledgeBase.create(self._path, passages, language="en", encoder=encoder)
    )
    return found | changed(passages, lambda row: base.add([row]), base.delete)

  def open(self) -> Callable[..., list[str]]:
    base = realm_jax.KnowledgeBase(self._path)

    def search(question: str, filtered: bool = False, **exact: bool) -> list[str]:
      where = {"year": _YEARS} if filtered else None
      return [hit.id for hit in base.search(question, k=_K, where=where, **exact)]

    return search


class OursWithEncoder(Ours):
  encodes = True


class Tantivy:
  """An index of tantivy with the terms and pairs that a knowledge base has."""

  needs, encodes = ("tantivy",), False

  def __init__(self, directory: pathlib.Path, collection: Collection):
    import tantivy

    from realm_jax.text.analysis import Analyzer

    self._tantivy, self._path, self._collection = tantivy, directory / "tantivy", collection
    self._analyzer = Analyzer(("en",))
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    schema.add_integer_field("year", stored=True, indexed=True, fast=True)
    schema.add_bytes_field("text", stored=True)
    for field in ("terms", "pairs"):
      schema.add_text_field(field, tokenizer_name="terms", index_option="freq")
    self._schema = schema.build()

  def _index(self) -> Any:
    self._path.mkdir(parents=True, exist_ok=True)
    index = self._tantivy.Index(self._schema, path=str(self._path))
    splitting = self._tantivy.Tokenizer.whitespace()
    index.register_tokenizer("terms", self._tantivy.TextAnalyzerBuilder(splitting).build())
    return index

  def _document(self, row: dict) -> Any:
    document = self._tantivy.Document(id=row["id"], year=row.get("year", 1955))
    text = f"{row.get('title', '')}\n{row['text']}"
    document.add_bytes("text", text.encode())
    terms = self._analyzer.terms(text)
    document.add_text("terms", " ".join(terms))
    document.add_text("pairs", " ".join(map("_".join, itertools.pairwise(terms))))
    return document

  def build(self) -> dict[str, float]:
    index = self._index()

    def write(rows: Iterable[dict], gone: Iterable[str] = ()) -> None:
      writer = index.writer(200_000_000, 1)
      for row in rows:
        writer.add_document(self._document(row))
      for id in gone:
        writer.delete_documents_by_term("id", id)
      writer.commit()
      writer.wait_merging_threads()

    passages = self._collection.passages
    creating, _ = timed(lambda: write(read(passages)))
    found = changed(passages, lambda row: write([row]), lambda id: write([], [id]))
    return {"create, s": creating, **found}

  def open(self) -> Callable[..., list[str]]:
    index = self._index()
    searcher, query = index.searcher(), self._tantivy.Query
    should, must = self._tantivy.Occur.Should, self._tantivy.Occur.Must
    years = (_YEARS["gte"], _YEARS["lt"] - 1)
    within = query.range_query(self._schema, "year", self._tantivy.FieldType.Integer, *years)
    dropped = self._analyzer.idle("en")

    def search(question: str, filtered: bool = False) -> list[str]:
      terms = self._analyzer.terms(question)
      terms = [term for term in terms if term not in dropped] or terms
      pairs = map("_".join, itertools.pairwise(terms))
      parts = []
      for field, weight, counted in (("terms", 1, terms), ("pairs", 0.15, pairs)):
        for term, count in collections.Counter(counted).items():
          one = query.term_query(self._schema, field, term, "freq")
          parts.append((should, query.boost_query(one, weight * count)))
      asked = query.boolean_query(parts)
      if filtered:
        asked = query.boolean_query([(must, asked), (must, query.const_score_query(within, 0.0))])
      found = searcher.search(asked, _K, count=False).hits
      documents = [searcher.doc(address) for _, address in found]
      return [document.get_first("id") for document in documents]

    return search


class Bm25s:
  """An index of bm25s, saved with its passages."""

  needs, encodes = ("bm25s",), False

  def __init__(self, directory: pathlib.Path, collection: Collection):
    import bm25s
    import Stemmer

    self._bm25s, self._path, self._collection = bm25s, directory / "bm25s", collection
    self._stemmer = Stemmer.Stemmer("english")

  def build(self) -> dict[str, float]:
    creating, _ = timed(self._create)
    adding, _ = timed(self._index)
    return {"create, s": creating, "add one, ms": 1e3 * adding, "delete one, ms": 1e3 * adding}

  def _create(self) -> None:
    self._rows = [*read(self._collection.passages)]
    self._terms = self._analyzed([f"{row['title']}\n{row['text']}" for row in self._rows])
    self._index()

  def _index(self) -> None:
    index = self._bm25s.BM25(backend="auto")
    index.index(self._terms, show_progress=False)
    index.save(str(self._path), corpus=self._rows)

  def _analyzed(self, texts: list[str], **options: Any) -> Any:
    return self._bm25s.tokenize(
      texts, stopwords="en", stemmer=self._stemmer, show_progress=False, **options
    )

  def open(self) -> Callable[..., list[str]]:
    self._opened = self._bm25s.BM25.load(str(self._path), mmap=True, load_corpus=True)
    return lambda question: [row["id"] for row in self._best(question, _K)]

  def _best(self, question: str, k: int) -> list[dict]:
    k = min(k, self._opened.scores["num_docs"])
    (found,), _ = self._opened.retrieve(
      self._analyzed([question], return_ids=False), k=k, show_progress=False
    )
    return list(found)


class Bm25sFaiss(Bm25s):
  """The same, fused with FAISS."""

  needs, encodes = ("bm25s", "faiss"), True

  def __init__(self, directory: pathlib.Path, collection: Collection):
    import faiss

    super().__init__(directory, collection)
    faiss.omp_set_num_threads(1)
    self._faiss, self._file, self._encoder = faiss, str(directory / "faiss"), collection.encoder()

  def _create(self) -> None:
    super()._create()
    vectors = self._encoder.passages([(row["title"], row["text"]) for row in self._rows])
    number, size = vectors.shape
    cells, metric = round(2 * number**0.5), self._faiss.METRIC_INNER_PRODUCT
    index = self._faiss.IndexIVFFlat(self._faiss.IndexFlatIP(size), size, cells, metric)
    index.cp.niter, index.cp.max_points_per_centroid = 8, 64
    index.train(vectors)
    index.add(vectors)
    self._faiss.write_index(index, self._file)

  def open(self) -> Callable[..., list[str]]:
    super().open()
    index = self._faiss.read_index(self._file)
    index.nprobe = _PROBES
    ids = [row["id"] for row in self._opened.corpus]

    def search(question: str) -> list[str]:
      _, ((*rows,),) = index.search(self._encoder.question(question)[None], _FUSED)
      scores: collections.Counter[str] = collections.Counter()
      words = [row["id"] for row in self._best(question, _FUSED)]
      for ranked in (words, [ids[row] for row in rows if 0 <= row < len(ids)]):
        scores.update({id: 1 / (60 + rank) for rank, id in enumerate(ranked)})
      return [id for id, _ in scores.most_common(_K)]

    return search


SYSTEMS = {
  "realm_jax": Ours,
  "bm25s": Bm25s,
  "tantivy": Tantivy,
  "realm_jax, encoder": OursWithEncoder,
  "bm25s and FAISS": Bm25sFaiss,
}


def searches(system: Any, questions: list[dict]) -> dict[str, Any]:
  """Returns how fast an opened system searches, and what it finds."""
  opening, search = timed(system.open)
  first, _ = timed(lambda: search(questions[0]["question"]))
  figures = {"open, ms": 1e3 * opening, "first search, ms": 1e3 * first}

  def asked(**options: bool) -> tuple[list[float], list[list[str]]]:
    runs = [timed(lambda q=q: search(q["question"], **options)) for q in questions]
    return [1e3 * seconds for seconds, _ in runs], [ids for _, ids in runs]

  def has_answer(found: list[list[str]]) -> np.ndarray:
    pairs = zip(found, questions, strict=True)
    return np.array([q["passage_id"] in {i.rpartition("/")[0] for i in ids} for ids, q in pairs])

  spent, found = asked()
  figures["p50, ms"] = statistics.median(spent)
  figures["p95, ms"] = statistics.quantiles(spent, n=20)[-1]
  if not isinstance(system, Bm25s):
    figures["with a filter, p50, ms"] = statistics.median(asked(filtered=True)[0])
  figures[f"recall@{_K}"] = float(has_answer(found).mean())
  if isinstance(system, OursWithEncoder):
    questions = questions[:200]
    spent, exact = asked(exact=True)
    figures["exact, p50, ms"] = statistics.median(spent)
    shared = [len({*a} & {*b}) / len(b) for a, b in zip(found, exact, strict=False)]
    figures["agreement"] = statistics.mean(shared)
    differences = has_answer(found[: len(exact)]).astype(float) - has_answer(exact)
    drawn = np.random.default_rng(0).choice(differences, (10_000, len(differences))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    figures["found - exact"] = f"{differences.mean():+.3f} ({low:+.3f} to {high:+.3f})"
  return figures


def phase(name: str, system_name: str, directory: pathlib.Path, given: Any) -> dict[str, Any]:
  """Returns the figures of one phase, with its peak memory in MiB."""
  collection, questions = given
  system = SYSTEMS[system_name](directory, collection)
  found = system.build() if name == "build" else searches(system, questions)
  (peak,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
  return {**found, f"memory to {name}, MiB": int(peak.split()[1]) / 1024}


def measured(system: str, directory: pathlib.Path, given: Any) -> dict[str, Any]:
  """Returns all figures of a system, which is built unless it is there."""
  built = directory / "build.json"
  if not built.exists():
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    built.write_text(json.dumps(in_process("build", system, directory, given)))
  files = [path for path in directory.rglob("*") if path.is_file()]
  disk = sum(path.stat().st_size for path in files) / 2**20
  searched = in_process("search", system, directory, given)
  return {**json.loads(built.read_text()), **searched, "disk, MiB": disk}


def in_process(*arguments: Any) -> dict[str, Any]:
  with concurrent.futures.ProcessPoolExecutor(1, mp_context=_SPAWN) as process:
    return process.submit(phase, *arguments).result()


def windows(paths: Iterable[str], *, words: int) -> Iterator[dict]:
  """Yields the documents of JSON Lines, cut into windows of so many words."""
  number = itertools.count()
  for document in itertools.chain.from_iterable(map(read, paths)):
    text = document["text"].split()
    for part, first in enumerate(range(0, len(text), words)):
      yield {
        "id": f"{document['id']}/{part}",
        "title": document["title"],
        "text": " ".join(text[first : first + words]),
        "year": 1900 + next(number) * 7919 % 120,
      }


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--corpus", nargs="+", required=True, help="JSON Lines")
  parser.add_argument("--questions", required=True, help="with `question` and `passage_id`")
  parser.add_argument("--directory", type=pathlib.Path, required=True, help="for what is built")
  parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 100_000, 1_000_000])
  parser.add_argument("--words", type=int, default=36, help="of a passage")
  parser.add_argument("--embeddings", help="of the passages, in their order")
  parser.add_argument("--question_embeddings")
  parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS])
  asked = parser.parse_args()
  systems = [
    name
    for name in asked.systems
    if all(map(importlib.util.find_spec, SYSTEMS[name].needs))
    and (asked.embeddings or not SYSTEMS[name].encodes)
  ]
  for size in asked.sizes:
    directory = asked.directory / str(size)
    directory.mkdir(parents=True, exist_ok=True)
    passages = directory / "passages.jsonl"
    if not passages.exists():
      with open(f"{passages}.new", "w", encoding="utf-8") as file:
        rows = itertools.islice(windows(asked.corpus, words=asked.words), size)
        file.writelines(json.dumps(row) + "\n" for row in rows)
      os.replace(f"{passages}.new", passages)
    kept = itertools.islice(read(passages), size - _CHANGES)  # the others are deleted
    ids = {row["id"].rpartition("/")[0] for row in kept}
    there = [question for question in read(asked.questions) if question["passage_id"] in ids]
    there = random.Random(0).sample(there, min(_QUESTIONS, len(there)))
    files = (asked.questions, asked.embeddings, asked.question_embeddings)
    given = (Collection(str(passages), *files), there)
    table = {system: measured(system, directory / system, given) for system in systems}
    rows = dict.fromkeys(itertools.chain.from_iterable(table.values()))
    cells = ([row, *(figures.get(row, "") for figures in table.values())] for row in rows)
    print(f"\n{measuring.table([f'{size:,} passages', *table], cells)}", flush=True)


if __name__ == "__main__":
  main()

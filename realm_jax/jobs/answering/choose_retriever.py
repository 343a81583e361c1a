"""Chooses between an encoder, BM25 and both, without labels."""

import dataclasses
import functools
import itertools
import json
import os
import tempfile
from collections.abc import Iterator

from realm_jax.checkpoints.opening import Sources, open_corpus
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.documents import Document
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import Question
from realm_jax.evaluation import probes, result_card
from realm_jax.evaluation.asking import Asking
from realm_jax.evaluation.document_ranking import Run, rank_documents
from realm_jax.evaluation.systems import open_system
from realm_jax.foundations import atomic_files
from realm_jax.index.fused_searcher import Fusion
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.jobs.training.build_index import build_index

_START = "hybrid"
_RETRIEVERS = {
  "dense": Sources(retriever="dense"),
  "bm25": Sources(retriever="bm25"),
  "hybrid": Sources(retriever="hybrid", fusion=Fusion().for_documents()),
}


def choose_retriever(
  *,
  checkpoints: str,
  passages: str,
  output: str | None = None,
  num_queries: int = 400,
  max_documents: int = 20_000,
  seed: int = 0,
) -> str:
  """Chooses the retriever of a corpus by probes that are made from it.

  Titles have to find their documents, and sentences the documents that they were taken from, in
  texts without either. The encoder embeds these texts anew, so that takes as long as indexing them.
  The fusion stays, unless the encoder or BM25 alone is better in a probe and worse in none, by 95 %
  intervals.

  Args:
    checkpoints: Directory of a training run's checkpoints, or of an imported encoder.
    passages: Directory of the corpus.
    output: Directory for `card.md` and `figures.json`; None only prints.
    num_queries: Queries of each probe, at most.
    max_documents: Of more documents, as many are sampled.
    seed: Seeds the sample and the queries.

  Returns:
    The choice, as `--retriever` takes it: "dense", "bm25" or "hybrid".

  Raises:
    FileNotFoundError: If an input is missing.
    ValueError: If checkpoint and corpus do not match.
  """
  if num_queries < 1 or max_documents < 1:
    raise ValueError(
      f"num_queries={num_queries} and max_documents={max_documents}; give at least 1 of each"
    )
  if output is not None:
    result_card.EVALUATION.check(output)
  store = open_corpus(passages).store
  made = probes.make(
    _documents(store),
    num_queries=num_queries,
    max_documents=max_documents,
    language=store.metadata.languages[0],
    seed=seed,
  )
  queries = [query for asked in made.queries.values() for query in asked]
  with tempfile.TemporaryDirectory() as folder:
    folders = _indexed(made, folder, store=store, checkpoints=checkpoints)
    document, searches = PassageStore(folders["passages"]).document, {}
    for retriever, settings in _RETRIEVERS.items():
      system = open_system(dataclasses.replace(settings, **folders), Asking())
      found = rank_documents(
        system.retrieve,
        [Question(id=query.text, text=query.text, answers=()) for query in queries],
        document=document,
        num_documents=probes.DEPTH,
      )
      searches[retriever] = functools.partial(_found, found)
    choice = probes.choose(searches, made.queries, start=_START)
  measured = {
    "choice": choice.chosen,
    "checkpoint": checkpoints,
    "corpus": f"{passages} (fingerprint {store.fingerprint}), {len(made.documents)} documents",
    **{f"queries from {probe}": len(asked) for probe, asked in made.queries.items()},
  }
  _publish(choice, measured, output)
  return choice.chosen


def _documents(store: PassageStore) -> Iterator[Document]:
  """Yields the documents whose passages a store has."""
  rows = itertools.groupby(range(len(store)), key=lambda row: store.document(row) or row)
  for name, passages in rows:
    first = next(passages)
    texts = [store.text(row) for row in (first, *passages)]
    yield Document(id=str(name), title=store.title(first), text="\n".join(texts))


def _indexed(
  made: probes.Probes, folder: str, *, store: PassageStore, checkpoints: str
) -> dict[str, str]:
  """Cuts, embeds and indexes the probes' documents."""
  corpus, passages, index = (os.path.join(folder, n) for n in ("corpus.jsonl", "passages", "index"))
  records = ({"id": d.id, "text": d.text} for d in made.documents)
  atomic_files.write_text(corpus, "".join(json.dumps(record) + "\n" for record in records))
  prepare_corpus(
    input=corpus,
    vocabulary=os.path.join(store.local_directory, "vocabulary"),
    output=passages,
    language=store.metadata.languages,
    chunking=ChunkingConfig(max_passage_length=store.metadata.max_passage_length),
    drop_list_pages=False,
  )
  build_index(checkpoints=checkpoints, passages=passages, index=index)
  return {"checkpoints": checkpoints, "passages": passages, "index": index}


def _found(run: Run, query: str, k: int) -> list[str]:
  return list(run[query])[:k]


def _publish(choice: probes.Choice, measured: dict, output: str | None) -> None:
  figures, intervals = {}, {}
  for name, means in choice.means.items():
    for probe, mean in means.items():
      figures[f"{probe}: {name}"] = mean
  for name, of in choice.comparisons.items():
    for probe, comparison in of.items():
      figures[f"{probe}: {name} - {_START}"] = comparison.difference
      intervals[f"{probe}: {name} - {_START}"] = comparison.interval
  result_card.write(
    {"measured": measured, "figures": figures, "intervals": intervals}, output=output
  )

"""Chooses a retriever without labels, by two probes that the documents themselves answer.

A title is to find its document, and a sentence the document that it was taken from. Both are left
out of the texts that are searched. Many variants of a retriever would find one that fits the probes
by chance, so compare few, and keep the first one unless the probes say otherwise.
"""

import dataclasses
import heapq
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from realm_jax.corpus.documents import Document
from realm_jax.evaluation.ranking_metrics import ndcg
from realm_jax.evaluation.resampling import Comparison, compare
from realm_jax.text.segmentation import sentence_spans

DEPTH = 10  # of nDCG
_WORDS = (8, 40)  # of a sentence
_FEWEST_SENTENCES = 3

# `search(query, k)` returns the ids of at most k documents, best first.
Search = Callable[[str, int], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Query:
  """A query, and the ids of the documents that are right."""

  text: str
  right: frozenset[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probes:
  """What to search, and for what.

  Attributes:
    documents: Documents without their titles and the sentences that queries ask for.
    queries: Queries by the name of the probe, "titles" and "sentences".
  """

  documents: Sequence[Document]
  queries: Mapping[str, Sequence[Query]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
  """A retriever, and why.

  Attributes:
    chosen: Its name.
    means: The mean nDCG@10 of each retriever in each probe.
    comparisons: Each other retriever with the start in each probe.
  """

  chosen: str
  means: Mapping[str, Mapping[str, float]]
  comparisons: Mapping[str, Mapping[str, Comparison]]

  def __str__(self) -> str:
    """Returns the choice and a table of means and, with 95 % intervals, differences."""
    rows = [["", *self.means[self.chosen]]]
    for name, means in self.means.items():
      compared = self.comparisons.get(name)
      cells = [
        f"{mean:.3f}" + (_difference(compared[probe]) if compared else "")
        for probe, mean in means.items()
      ]
      rows.append([name, *cells])
    table = ("".join(f"{cell:<34}" for cell in row).rstrip() for row in rows)
    return "\n".join([f"chosen: {self.chosen}", *table])


def _difference(comparison: Comparison) -> str:
  low, high = comparison.interval
  return f" ({comparison.difference:+.3f}, {low:+.3f} to {high:+.3f})"


def make(
  documents: Iterable[Document],
  *,
  num_queries: int = 400,
  max_documents: int = 20_000,
  language: str = "en",
  seed: int = 0,
) -> Probes:
  """Makes both probes.

  Args:
    num_queries: Queries of each, at most.
    max_documents: Of more documents, as many are sampled.
    language: Decides where sentences end.
  """
  draw = random.Random(seed)
  sampled = heapq.nlargest(max_documents, documents, key=lambda _: draw.random())
  untitled = [_without_title(document) for document in sampled]
  by_title: dict[str, set[str]] = {}
  for document, rest in zip(sampled, untitled, strict=True):
    if document.title.strip() and rest.text:
      by_title.setdefault(document.title.strip(), set()).add(document.id)
  titles = [Query(title, frozenset(ids)) for title, ids in by_title.items()]

  sentences, documents = [], []
  for document in draw.sample(untitled, len(untitled)):
    candidates = _sentences(document.text, language) if len(sentences) < num_queries else []
    if candidates:
      sentence = draw.choice(candidates)
      sentences.append(Query(sentence, frozenset([document.id])))
      # Everywhere, because passages may overlap.
      document = dataclasses.replace(document, text=document.text.replace(sentence, " "))
    documents.append(document)
  return Probes(
    documents=[document for document in documents if document.text.strip()],
    queries={
      "titles": draw.sample(titles, min(num_queries, len(titles))),
      "sentences": sentences,
    },
  )


def choose(
  retrievers: Mapping[str, Search], queries: Mapping[str, Sequence[Query]], *, start: str
) -> Choice:
  """Chooses a retriever.

  Args:
    retrievers: Searches of the probes' documents, by name.
    queries: The queries of each probe.
    start: The name of the retriever to keep, unless another is better in a probe and worse in none,
      by 95 % confidence intervals of the paired difference, and higher in the sum of all probes.
  """
  scores = {
    name: {probe: _ndcg(search, probed) for probe, probed in queries.items()}
    for name, search in retrievers.items()
  }
  means = {
    name: {probe: float(values.mean()) for probe, values in of.items() if len(values)}
    for name, of in scores.items()
  }
  comparisons = {
    name: {probe: compare(of[probe], scores[start][probe]) for probe in queries if queries[probe]}
    for name, of in scores.items()
    if name != start
  }
  better = [
    name
    for name, of in comparisons.items()
    if any(each.interval[0] > 0 for each in of.values())
    and not any(each.interval[1] < 0 for each in of.values())
  ]
  chosen = max([start, *better], key=lambda name: sum(means[name].values()))
  return Choice(chosen=chosen, means=means, comparisons=comparisons)


def _without_title(document: Document) -> Document:
  title, text = document.title.strip(), document.text
  if title and text.lower().startswith(title.lower()):
    text = text[len(title) :].lstrip(" .\n")
  return dataclasses.replace(document, title="", text=text, spans=None)


def _sentences(text: str, language: str) -> list[str]:
  """Returns the sentences to ask for; none if the text is too short to miss one."""
  raw = text.encode()
  spans = sentence_spans(text, language=language)
  if len(spans) < _FEWEST_SENTENCES:
    return []
  sentences = [raw[start:limit].decode() for start, limit in spans]
  return [each for each in sentences if _WORDS[0] <= len(each.split()) <= _WORDS[1]]


def _ndcg(search: Search, queries: Sequence[Query]) -> np.ndarray:
  """Returns nDCG@10 of each query, which counts all documents that share a title."""
  return np.array(
    [
      ndcg([id in query.right for id in search(query.text, DEPTH)], len(query.right), at=DEPTH)
      for query in queries
    ]
  )

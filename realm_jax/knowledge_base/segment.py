"""Segments: documents with their passages and postings, written once and never changed."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from realm_jax.corpus.documents import Document
from realm_jax.index import cells, postings
from realm_jax.index.cells import Cells, Moments
from realm_jax.index.postings import Postings
from realm_jax.knowledge_base import array_file
from realm_jax.knowledge_base.columns import Fields, Strings
from realm_jax.text.languages import language_of


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Segment:
  """D documents with N passages.

  Attributes:
    ids: Names of the documents.
    hashes: uint64 `[D]`, of the ids.
    digests: uint8 `[D, 16]`, of everything that a document has except its id.
    first_passages: int64 `[D+1]`; the passages of document d are the rows from its own to the next.
    texts: The passages.
    embeddings_NxE: float32, of the passages; None without an encoder, or if there are `cells`.
    cells: The same, if there are many.
    reanalyzed: Whether the file has terms of an older version, which were found again.
  """

  ids: Strings
  titles: Strings
  hashes: np.ndarray
  digests: np.ndarray
  fields: Fields
  first_passages: np.ndarray
  texts: Strings
  postings: Postings
  embeddings_NxE: np.ndarray | None = None
  cells: Cells | None = None
  reanalyzed: bool = False

  @classmethod
  def of(
    cls,
    documents: Sequence[Document],
    *,
    cut: Callable[[Document, str], Sequence[str]],
    languages: Sequence[str],
    embed: Callable[[Sequence[tuple[str, str]]], np.ndarray] | None = None,
  ) -> "Segment":
    """Returns the segment of documents, which `cut` divides into passages.

    Args:
      languages: Those that documents may have; none for any.
      embed: Returns the embeddings of titles and texts of passages; None for no encoder.
    """
    found = [language_of(f"{d.title}\n{d.text}", among=languages) for d in documents]
    passages = [cut(*pair) for pair in zip(documents, found, strict=True)]
    counts = [*map(len, passages)]
    titles = [d.title for d, count in zip(documents, counts, strict=True) for _ in range(count)]
    texts = [text for passage in passages for text in passage]
    return cls(
      ids=Strings.of(document.id for document in documents),
      titles=Strings.of(document.title for document in documents),
      hashes=id_hashes([document.id for document in documents]),
      digests=content_digests(documents),
      fields=Fields.of([document.fields for document in documents]),
      first_passages=np.cumsum([0, *counts], dtype=np.int64),
      texts=Strings.of(texts),
      postings=Postings.build(
        map(titled, titles, texts),
        languages=sorted(set(found)),
        language_of=[name for name, n in zip(found, counts, strict=True) for _ in range(n)],
      ),
      **_embedded(embed([*zip(titles, texts, strict=True)]) if embed else None),
    )

  @classmethod
  def merge(cls, segments: Sequence["Segment"], live: Sequence[np.ndarray]) -> "Segment":
    """Returns the live documents of segments as one, without analysing them again.

    Args:
      live: For each segment, bool `[D]`.
    """
    of_passages = [s.of_passages(mask) for s, mask in zip(segments, live, strict=True)]
    pairs = [*zip(segments, live, strict=True)]
    embeddings_NxE = None
    if segments[0].has_embeddings:
      parts = [s.embeddings(rows) for s, rows in zip(segments, of_passages, strict=True)]
      embeddings_NxE = np.concatenate(parts)
    counts = np.concatenate([np.diff(s.first_passages)[mask] for s, mask in pairs])
    return cls(
      ids=Strings.join([s.ids.kept(mask) for s, mask in pairs]),
      titles=Strings.join([s.titles.kept(mask) for s, mask in pairs]),
      hashes=np.concatenate([s.hashes[mask] for s, mask in pairs]),
      digests=np.concatenate([s.digests[mask] for s, mask in pairs]),
      fields=Fields.join(
        [s.fields.kept(mask) for s, mask in pairs], [int(mask.sum()) for mask in live]
      ),
      first_passages=np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
      texts=Strings.join(
        [s.texts.kept(rows) for s, rows in zip(segments, of_passages, strict=True)]
      ),
      postings=Postings.merge([s.postings for s in segments], live=np.concatenate(of_passages)),
      **_embedded(embeddings_NxE),
    )

  @property
  def num_documents(self) -> int:
    return len(self.ids)

  @property
  def num_passages(self) -> int:
    return len(self.texts)

  @functools.cached_property
  def documents_N(self) -> np.ndarray:
    """The document of each passage."""
    return np.repeat(np.arange(self.num_documents, dtype=np.int32), np.diff(self.first_passages))

  @property
  def has_embeddings(self) -> bool:
    return self.embeddings_NxE is not None or self.cells is not None

  def embeddings(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Returns the embeddings of some passages, given as rows or as a mask."""
    if self.cells is not None:
      return self.cells.embeddings_NxE[self.cells.places[rows]]
    assert self.embeddings_NxE is not None, "an encoder has embedded all segments"
    return self.embeddings_NxE[rows]

  def inner_products(self, question_E: np.ndarray) -> np.ndarray:
    """Returns the scores of the passages for the embedding of a question, float32 `[N]`."""
    if self.cells is not None:
      return cells.inner_products(self.cells.embeddings_NxE, question_E)[self.cells.places]
    assert self.embeddings_NxE is not None, "an encoder has embedded all segments"
    return cells.inner_products(self.embeddings_NxE, question_E)

  def embeddings_of(self, document: int) -> dict[tuple[str, str], np.ndarray]:
    """Returns the embeddings of a document's passages by title and text."""
    if not self.has_embeddings:
      return {}
    title, rows = self.titles[document], slice(*self.first_passages[document : document + 2])
    texts = map(self.texts.__getitem__, range(rows.start, rows.stop))
    return {(title, text): row_E for text, row_E in zip(texts, self.embeddings(rows), strict=True)}

  def of_passages(self, mask_D: np.ndarray) -> np.ndarray:
    """Returns a mask over passages from one over documents."""
    return np.repeat(mask_D, np.diff(self.first_passages))

  @functools.cached_property
  def _by_hash(self) -> np.ndarray:
    return np.argsort(self.hashes, kind="stable")

  def rows(self, ids: Sequence[str]) -> np.ndarray:
    """Returns the row of each of some documents, deleted ones included, or -1."""
    hashes, rows = id_hashes(ids), np.full(len(ids), -1, np.int64)
    firsts = np.searchsorted(self.hashes, hashes, sorter=self._by_hash)
    limits = np.searchsorted(self.hashes, hashes, side="right", sorter=self._by_hash)
    for place in np.flatnonzero(firsts < limits).tolist():
      for row in self._by_hash[firsts[place] : limits[place]].tolist():
        if self.ids[row] == ids[place]:
          rows[place] = row
    return rows

  def write(self, path: str) -> None:
    """Writes the segment to a file."""
    arrays = {
      "hashes": self.hashes,
      "digests": self.digests,
      "first_passages": self.first_passages,
    }
    for name, columns in (("ids", self.ids), ("titles", self.titles), ("texts", self.texts)):
      arrays |= {f"{name}.content": columns.content, f"{name}.ends": columns.ends}
    arrays |= {f"fields.{name}": codes for name, codes in self.fields.codes.items()}
    arrays |= {f"postings.{name}": getattr(self.postings, name) for name in _OF_POSTINGS}
    metadata = {
      "languages": self.postings.languages,
      "terms": postings.FORMAT,
      "values": self.fields.values,
    }
    if self.embeddings_NxE is not None:
      arrays["embeddings"] = self.embeddings_NxE
    if self.cells is not None:
      arrays |= {f"cells.{name}": getattr(self.cells, name) for name in _OF_CELLS}
      arrays |= {f"cells.{name}": getattr(self.cells.moments, name) for name in _OF_MOMENTS}
      metadata["probes"] = self.cells.probes
    array_file.write(path, arrays, metadata=metadata)

  @classmethod
  def open(cls, path: str) -> "Segment":
    """Maps the segment in a file into memory."""
    arrays, metadata = array_file.open_mapped(path)

    def strings(name: str) -> Strings:
      return Strings(arrays[f"{name}.content"], arrays[f"{name}.ends"])

    titles, texts, first_passages = strings("titles"), strings("texts"), arrays["first_passages"]
    languages = tuple(metadata["languages"])
    if old := metadata.get("terms") != postings.FORMAT:
      logging.warning(
        "%s has terms of an older version, which are found again at each opening until the "
        "knowledge base is changed or compacted",
        path,
      )
      documents_N = np.repeat(np.arange(len(titles)), np.diff(first_passages)).tolist()
      titles_N = map(titles.__getitem__, documents_N)
      titled_N = map(titled, titles_N, map(texts.__getitem__, range(len(texts))))
      of_texts = Postings.build(titled_N, languages=languages)
    else:
      of_texts = Postings(
        languages=languages, **{name: arrays[f"postings.{name}"] for name in _OF_POSTINGS}
      )
    return cls(
      ids=strings("ids"),
      titles=titles,
      hashes=arrays["hashes"],
      digests=arrays["digests"],
      fields=Fields(
        metadata["values"], {name: arrays[f"fields.{name}"] for name in metadata["values"]}
      ),
      first_passages=first_passages,
      texts=texts,
      postings=of_texts,
      reanalyzed=old,
      embeddings_NxE=arrays.get("embeddings"),
      cells=_cells(arrays, metadata["probes"]) if "probes" in metadata else None,
    )


_SORTED = json.JSONEncoder(sort_keys=True)  # which json.dumps makes anew each time
_OF_POSTINGS = tuple(f.name for f in dataclasses.fields(Postings) if f.name != "languages")
_OF_CELLS = ("embeddings_NxE", "rows", "ends", "centroids_CxE")
_OF_MOMENTS = ("sum_E", "products_ExE")


def _embedded(embeddings_NxE: np.ndarray | None) -> dict[str, Any]:
  """Returns the fields of a segment that has these embeddings."""
  if embeddings_NxE is None or len(embeddings_NxE) < cells.FEWEST:
    return {"embeddings_NxE": embeddings_NxE}
  return {"cells": Cells.of(embeddings_NxE)}


def _cells(arrays: Mapping[str, np.ndarray], probes: int) -> Cells:
  moments = {name: arrays[f"cells.{name}"] for name in _OF_MOMENTS}
  of_cells = {name: arrays[f"cells.{name}"] for name in _OF_CELLS}
  return Cells(**of_cells, moments=Moments(len(of_cells["rows"]), **moments), probes=probes)


def titled(title: str, text: str) -> str:
  """Returns the title and text of a passage, which are searched together."""
  return f"{title}\n{text}"


def id_hashes(ids: Sequence[str]) -> np.ndarray:
  """Returns 64 bits of a hash of each id."""
  digests = b"".join(hashlib.blake2b(id.encode(), digest_size=8).digest() for id in ids)
  return np.frombuffer(digests, np.uint64)


def content_digests(documents: Sequence[Document]) -> np.ndarray:
  """Returns a digest `[D, 16]` of everything that each document has except its id."""
  contents = (_SORTED.encode([d.title, d.text, d.fields]) for d in documents)
  digests = b"".join(hashlib.blake2b(c.encode(), digest_size=16).digest() for c in contents)
  return np.frombuffer(digests, np.uint8).reshape(-1, 16)

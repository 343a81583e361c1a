"""Segments: documents with their passages and postings, written once and never changed."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from realm_jax.corpus.documents import Document
from realm_jax.corpus.formats.outline import Mark
from realm_jax.foundations import array_folder, array_shapes, json_fields, text_files
from realm_jax.index.vectors import cells
from realm_jax.index.vectors.cells import Cells, Moments
from realm_jax.index.words import postings
from realm_jax.index.words.postings import Postings
from realm_jax.knowledge_base.store.columns import Fields, Strings, numbered, renumbered
from realm_jax.knowledge_base.store.passages import Passage, searched_titles, titled
from realm_jax.text.languages import Recognized, parse_tags, recognize


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Segment:
  """D documents with N passages.

  Attributes:
    ids: Names of the documents.
    hashes: uint64 `[D]`, of the ids.
    digests: uint8 `[D, 16]`, of everything that a document has except its id.
    files: What the files of the documents are known by, each once; "" for none.
    files_D: int32, the place of each document's file in `files`.
    recognized: What documents alone tell of their languages.
    recognized_D: The place of each document in `recognized`. The language that its terms are of
      depends on the others as well.
    outlines: Those of the documents, as JSON; "" for none.
    first_passages: int64 `[D+1]`; the passages of document d are the rows from its own to the next.
    texts: The passages.
    gaps: What stands before each in the text of its document, after the one before.
    pages_N: int32, where each begins; 0 for none.
    headings: Each once; "" for none.
    headings_N: int32, the place of each passage's in `headings`.
    embeddings_NxE: float32, of the passages; None without an encoder, or if there are `cells`.
    cells: The same, if there are many.
  """

  ids: Strings
  titles: Strings
  hashes: np.ndarray
  digests: np.ndarray
  files: Strings
  files_D: np.ndarray
  fields: Fields
  recognized: tuple[Recognized, ...]
  recognized_D: np.ndarray
  outlines: Strings
  first_passages: np.ndarray
  texts: Strings
  gaps: Strings
  pages_N: np.ndarray
  headings: Strings
  headings_N: np.ndarray
  postings: Postings
  embeddings_NxE: np.ndarray | None = None
  cells: Cells | None = None

  @classmethod
  def of(
    cls,
    documents: Sequence[Document],
    *,
    cut: Callable[[Document, str], Sequence[Passage]],
    languages: Sequence[str],
    choose: "Choose | None" = None,
    embed: Callable[[Sequence[tuple[str, str]]], np.ndarray] | None = None,
  ) -> "Segment":
    """Returns the segment of documents, which `cut` divides into passages.

    Args:
      languages: Those that documents may have; none for any.
      choose: Returns the languages that documents are read in; None reads them in those that they
        have alone.
      embed: Returns the embeddings of titles and texts of passages; None for no encoder.
    """
    found = [recognize(f"{d.title}\n{d.text}", among=languages) for d in documents]
    passages = [cut(d, one.language) for d, one in zip(documents, found, strict=True)]
    counts = [*map(len, passages)]
    parts = [part for of_one in passages for part in of_one]
    texts = [part.text for part in parts]
    names = (document.title for document in documents)
    titles = [*searched_titles(names, counts, (part.heading for part in parts), texts)]
    headings = numbered(part.heading for part in parts)
    recognized = tuple(sorted({*found}))
    sizes = [_size(d.title, of_one) for d, of_one in zip(documents, passages, strict=True)]
    read_in = choose(found, sizes) if choose else [one.language for one in found]
    files = numbered(document.file for document in documents)
    return cls(
      ids=Strings.of(document.id for document in documents),
      titles=Strings.of(document.title for document in documents),
      hashes=id_hashes([document.id for document in documents]),
      digests=content_digests(documents),
      files=Strings.of(files),
      files_D=np.array([files[document.file] for document in documents], np.int32),
      fields=Fields.of([document.fields for document in documents]),
      recognized=recognized,
      recognized_D=np.array([*map(recognized.index, found)], np.uint16),
      outlines=Strings.of(json.dumps(d.outline) if d.outline else "" for d in documents),
      first_passages=np.cumsum([0, *counts], dtype=np.int64),
      texts=Strings.of(texts),
      gaps=Strings.of(part.gap for part in parts),
      pages_N=np.array([part.page for part in parts], np.int32),
      headings=Strings.of(headings),
      headings_N=np.array([headings[part.heading] for part in parts], np.int32),
      postings=Postings.build(
        map(titled, titles, texts),
        languages=sorted({*read_in}),
        language_of=[name for name, n in zip(read_in, counts, strict=True) for _ in range(n)],
      ),
      **_embedded(embed([*zip(titles, texts, strict=True)]) if embed else None),
    )

  @classmethod
  def merge(cls, segments: Sequence["Segment"], live: Sequence[np.ndarray]) -> "Segment":
    """Returns the live documents of segments as one, without analyzing them again.

    Args:
      live: For each segment, bool `[D]`.
    """
    of_passages = [s.of_passages(mask) for s, mask in zip(segments, live, strict=True)]
    pairs = [*zip(segments, live, strict=True)]
    embeddings_NxE = None
    if segments[0].embedding_size:
      parts = [s.embeddings(rows) for s, rows in zip(segments, of_passages, strict=True)]
      embeddings_NxE = np.concatenate(parts)
    counts = np.concatenate([np.diff(s.first_passages)[mask] for s, mask in pairs])
    recognized = tuple(sorted({one for segment in segments for one in segment.recognized}))
    new = (np.array([*map(recognized.index, s.recognized)], np.uint16) for s in segments)
    numbers = [*zip(new, pairs, strict=True)]
    files, files_D = renumbered([(s.files, s.files_D[mask]) for s, mask in pairs])
    rows = [*zip(segments, of_passages, strict=True)]
    headings, headings_N = renumbered([(s.headings, s.headings_N[mask]) for s, mask in rows])
    return cls(
      ids=Strings.join([s.ids.kept(mask) for s, mask in pairs]),
      titles=Strings.join([s.titles.kept(mask) for s, mask in pairs]),
      outlines=Strings.join([s.outlines.kept(mask) for s, mask in pairs]),
      texts=Strings.join([s.texts.kept(mask) for s, mask in rows]),
      gaps=Strings.join([s.gaps.kept(mask) for s, mask in rows]),
      hashes=np.concatenate([s.hashes[mask] for s, mask in pairs]),
      digests=np.concatenate([s.digests[mask] for s, mask in pairs]),
      files=files,
      files_D=files_D,
      fields=Fields.join([s.fields.kept(mask) for s, mask in pairs]),
      recognized=recognized,
      recognized_D=np.concatenate([n[s.recognized_D[mask]] for n, (s, mask) in numbers]),
      first_passages=np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
      pages_N=np.concatenate([s.pages_N[mask] for s, mask in rows]),
      headings=headings,
      headings_N=headings_N,
      postings=Postings.merge([s.postings for s in segments], live=np.concatenate(of_passages)),
      **_embedded(embeddings_NxE),
    )

  def read_in(self, language_of: Callable[[Recognized], str]) -> "Segment":
    """Returns the same documents, with terms in other languages."""
    languages_D = np.array([*map(language_of, self.recognized)])[self.recognized_D]
    of_texts = Postings.build(
      map(titled, self._titles(), self.texts),
      languages=sorted({*languages_D.tolist()}),
      language_of=languages_D[self.documents_N].tolist(),
    )
    return dataclasses.replace(self, postings=of_texts)

  def kinds(self, deleted: Collection[int]) -> list[tuple[Recognized, str, int, int]]:
    """Returns what documents alone tell of their language, and the one that they are read in, with
    how many of them are not deleted, and their bytes."""
    kinds, kind_D, sizes_D, totals = self._kinds
    gone = np.fromiter(deleted, np.int64, len(deleted))
    counts, sizes = totals - _totals(kind_D[gone], sizes_D[gone], len(kinds))
    return [
      (self.recognized[kind >> 8], self.postings.languages[kind & 255], int(count), int(size))
      for kind, count, size in zip(kinds, counts, sizes, strict=True)
      if count
    ]

  def of_kind(self, wanted: Callable[[Recognized, str], bool]) -> np.ndarray:
    """Returns which documents are of some kinds, as bool `[D]`."""
    kinds, kind_D, *_ = self._kinds
    pairs = [(self.recognized[kind >> 8], self.postings.languages[kind & 255]) for kind in kinds]
    return np.array([wanted(*pair) for pair in pairs], bool)[kind_D]

  @functools.cached_property
  def _kinds(self) -> tuple[list[int], np.ndarray, np.ndarray, np.ndarray]:
    language_D = self.postings.language[self.first_passages[:-1]]
    kinds, kind_D = np.unique(
      self.recognized_D.astype(np.int64) << 8 | language_D, return_inverse=True
    )
    sizes_D = np.diff(self.titles.ends) + np.diff(self.texts.ends[self.first_passages])
    return kinds.tolist(), kind_D, sizes_D, _totals(kind_D, sizes_D, len(kinds))

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
  def embedding_size(self) -> int:
    """The numbers of an embedding; 0 without any."""
    found = self.embeddings_NxE if self.cells is None else self.cells.embeddings_NxE
    return 0 if found is None else found.shape[1]

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
    if not self.embedding_size:
      return {}
    rows = slice(*self.first_passages[document : document + 2].tolist())
    texts = map(self.texts.__getitem__, range(rows.start, rows.stop))
    titles = self._titles(document)
    return dict(zip(zip(titles, texts, strict=True), self.embeddings(rows), strict=True))

  def outline(self, document: int) -> tuple[Mark, ...]:
    """Returns where the pages and sections of a document begin."""
    try:
      content = text_files.parse_json(self.outlines[document] or "[]")
      return json_fields.restored(tuple[Mark, ...], content)
    except json_fields.WRONG as error:
      reason = json_fields.reason(error)
      raise ValueError(f"the outline of {self.ids[document]!r:.60} is damaged: {reason}") from error

  def _titles(self, document: int | None = None) -> Iterator[str]:
    """Yields what is searched with the texts of passages, of one document or all."""
    rows = slice(None) if document is None else slice(document, document + 1)
    counts = np.diff(self.first_passages)[rows].tolist()
    passages = range(self.num_passages)
    if document is not None:
      passages = range(*self.first_passages[document : document + 2].tolist())
    titles = map(self.titles.__getitem__, range(self.num_documents)[rows])
    headings = (self.headings[self.headings_N[row]] for row in passages)
    return searched_titles(titles, counts, headings, map(self.texts.__getitem__, passages))

  def start(self, passage: int, *, first: int) -> int:
    """Returns the first character of a passage in the text of a document, by its first passage."""
    before = len(self.texts.joined(first, passage)) if first < passage else 0
    return before + len(self.gaps.joined(first, passage + 1))

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
    metadata = _Metadata(
      languages=self.postings.languages,
      recognized=self.recognized,
      values=self.fields.values,
      probes=self.cells.probes if self.cells is not None else 0,
    )
    arrays = dict(array_folder.named_arrays(self))
    array_folder.write_file(path, arrays, kind=_KIND, description=metadata)

  @classmethod
  def open(cls, path: str) -> "Segment":
    """Maps the segment in a file into memory.

    Raises:
      ValueError: If it is damaged.
    """
    with json_fields.named(path):
      arrays, metadata = array_folder.open_file(path, kind=_KIND, of=_Metadata, shapes=_SHAPES)
      number = {"N": len(arrays["texts.ends"]) - 1}
      if has_cells := "cells.rows" in arrays:
        array_shapes.check(arrays, _SHAPES_OF_CELLS, **number)
      elif "embeddings_NxE" in arrays:
        array_shapes.check(arrays, {"embeddings_NxE": "f4 N E"}, **number)
      parts: dict[str, Any] = {name: a for name, a in arrays.items() if "." not in name}
      parts |= {n: Strings(arrays[f"{n}.content"], arrays[f"{n}.ends"]) for n in _OF_STRINGS}
      of_postings = {name: arrays[f"postings.{name}"] for name in postings.ARRAYS}
      segment = cls(
        **parts,
        fields=Fields(metadata.values, *(arrays[f"fields.{name}"] for name in _OF_FIELDS)),
        recognized=metadata.recognized,
        postings=Postings(languages=parse_tags(metadata.languages), **of_postings),
        cells=_cells(arrays, metadata.probes) if has_cells else None,
      )
      segment._check()
      segment.postings.check(**number)
      return segment

  def _check(self) -> None:
    """Checks that all is of what there is, except for what `check_values` does."""
    for name in _OF_STRINGS:
      strings = getattr(self, name)
      array_shapes.check_ends(name, strings.ends, len(strings.content))
    array_shapes.check_ends("fields", self.fields.ends, len(self.fields.codes))
    array_shapes.check_ends("passages", self.first_passages, self.num_passages)
    array_shapes.check_range("passages", self.first_passages[:-1], self.first_passages[1:])
    array_shapes.check_range("files", self.files_D, len(self.files))
    array_shapes.check_range("headings", self.headings_N, len(self.headings))
    array_shapes.check_range("recognized", self.recognized_D, len(self.recognized))
    counts = np.array([*map(len, self.fields.values.values())], np.int64)
    array_shapes.check_range("fields.names", self.fields.names, len(counts))
    array_shapes.check_range("fields.codes", self.fields.codes, counts[self.fields.names])
    if self.cells is not None:
      array_shapes.check_range("cells.rows", self.cells.rows, self.num_passages)
      array_shapes.check_ends("cells", np.append(0, self.cells.ends), self.num_passages)
      for few in (self.cells.centroids_CxE, *(vars(self.cells.moments)[n] for n in _OF_MOMENTS)):
        array_shapes.check_vectors("centroids and moments of cells", few)
      if not 1 <= self.cells.probes <= len(self.cells.ends):
        raise ValueError(f"a search reads {self.cells.probes!r:.60} cells")

  def check_values(self) -> None:
    """Checks what is not when a segment is opened, because there is too much of it."""
    self.postings.check_values()
    if self.embedding_size:
      array_shapes.check_vectors("embeddings", self.embeddings())
    if self.cells is not None:
      own = Moments.of(self.cells.embeddings_NxE)
      for name in _OF_MOMENTS:
        if not np.allclose(getattr(own, name), getattr(self.cells.moments, name)):
          raise ValueError(f"{name} is not that of the embeddings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Metadata:
  """What a file has beside arrays.

  Attributes:
    values: See `Fields`.
    probes: See `Cells`; 0 without.
  """

  languages: tuple[str, ...]
  recognized: tuple[Recognized, ...]
  values: dict[str, list]
  probes: int = 0


_KIND = array_folder.Kind(kind="segment", format=1)
# Of what documents alone tell of their languages, and their bytes.
Choose = Callable[[Sequence[Recognized], Sequence[int]], Sequence[str]]
_SORTED = json.JSONEncoder(sort_keys=True)  # which json.dumps makes anew each time
_OF_STRINGS = {"ids": "D", "titles": "D", "outlines": "D", "texts": "N", "gaps": "N"}
_OF_STRINGS |= {"headings": "H", "files": "F"}
_OF_FIELDS = ("ends", "names", "codes")
_OF_CELLS = ("embeddings_NxE", "rows", "ends", "centroids_CxE")
_OF_MOMENTS = ("sum_E", "products_ExE")
_SHAPES = {  # of the arrays of D documents in N passages
  "hashes": "u8 D",
  "digests": "u1 D 16",
  "recognized_D": "u2 D",
  "files_D": "i4 D",
  "first_passages": "i8 D+1",
  "pages_N": "i4 N",
  "headings_N": "i4 N",
  **{f"{name}.content": f"u1 {name}" for name in _OF_STRINGS},
  **{f"{name}.ends": f"i8 {number}+1" for name, number in _OF_STRINGS.items()},
  "fields.ends": "i8 D+1",
  "fields.names": "i4 P",
  "fields.codes": "i4 P",
}
_SHAPES_OF_CELLS = {
  "cells.embeddings_NxE": "f4 N E",
  "cells.rows": "i4 N",
  "cells.ends": "i8 C",
  "cells.centroids_CxE": "f4 C E",
  "cells.moments.sum_E": "f8 E",
  "cells.moments.products_ExE": "f8 E E",
}


def _embedded(embeddings_NxE: np.ndarray | None) -> dict[str, Any]:
  """Returns the fields of a segment that has these embeddings."""
  if embeddings_NxE is not None:
    array_shapes.check_vectors("embeddings", embeddings_NxE)
  if embeddings_NxE is None or len(embeddings_NxE) < cells.FEWEST:
    return {"embeddings_NxE": embeddings_NxE}
  return {"cells": Cells.of(embeddings_NxE)}


def _cells(arrays: Mapping[str, np.ndarray], probes: int) -> Cells:
  moments = {name: arrays[f"cells.moments.{name}"] for name in _OF_MOMENTS}
  of_cells = {name: arrays[f"cells.{name}"] for name in _OF_CELLS}
  return Cells(**of_cells, moments=Moments(len(of_cells["rows"]), **moments), probes=probes)


def _size(title: str, passages: Sequence[Passage]) -> int:
  return len(title.encode()) + sum(len(part.text.encode()) for part in passages)


def _totals(kind_D: np.ndarray, sizes_D: np.ndarray, count: int) -> np.ndarray:
  """Returns how many documents each kind has, and their bytes."""
  sizes = np.bincount(kind_D, weights=sizes_D, minlength=count)
  return np.stack([np.bincount(kind_D, minlength=count), sizes.astype(np.int64)])


def id_hashes(ids: Sequence[str]) -> np.ndarray:
  """Returns 64 bits of a hash of each id."""
  digests = b"".join(hashlib.blake2b(id.encode(), digest_size=8).digest() for id in ids)
  return np.frombuffer(digests, np.uint64)


def content_digests(documents: Sequence[Document]) -> np.ndarray:
  """Returns a digest `[D, 16]` of everything that each document has except its id."""
  contents = (
    _SORTED.encode([d.title, d.text, d.fields, *filter(None, [d.outline])]) for d in documents
  )
  digests = b"".join(hashlib.blake2b(c.encode(), digest_size=16).digest() for c in contents)
  return np.frombuffer(digests, np.uint8).reshape(-1, 16)

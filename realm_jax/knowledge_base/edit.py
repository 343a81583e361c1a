"""A commit in the making: what is added and deleted, and which segments are merged."""

import collections
import dataclasses
import functools
import math
import time
from collections.abc import Iterable, Sequence

import numpy as np

from realm_jax.corpus.documents import Document
from realm_jax.knowledge_base import commits, passages
from realm_jax.knowledge_base.embedder import Embedder, Passage
from realm_jax.knowledge_base.segment import Segment, content_digests
from realm_jax.knowledge_base.snapshot import Place, Snapshot

_CHARACTERS_AT_ONCE = 200_000_000  # of documents in memory before they become a segment
_FAN = 8  # segments of about one size that are merged
_SMALL = 512  # passages; smaller segments count as of one size
_MOST_DELETED = 0.2  # share of a segment's passages
_NAMED, _REMEMBERED = 5, 100  # documents of a change, changes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
  """What a call changed, as numbers of documents.

  Attributes:
    skipped: Lines that name the records without text, or that could not be read.
  """

  added: int = 0
  updated: int = 0
  unchanged: int = 0
  deleted: int = 0
  skipped: tuple[str, ...] = ()

  def __str__(self) -> str:
    counts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)[:-1]}
    done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return "\n".join([f"documents: {done or 'nothing to change'}", *self.skipped])


class Edit:
  """Changes to a snapshot that become visible together, when they are committed.

  Args:
    embed: Embeds passages; None for no encoder.

  Attributes:
    before: The snapshot.
    settings: Those of the commit.
    folders: Those of the commit.
    counts: Documents `added`, `updated`, `unchanged` and `deleted`.
    replaced: Ids of the documents that were there with another content.
  """

  def __init__(self, directory: str, before: Snapshot, *, embed: Embedder | None = None):
    self.settings = before.commit.settings
    self.folders = before.commit.folders
    self.counts: collections.Counter[str] = collections.Counter()
    self.replaced: list[str] = []
    self._directory = directory
    self.before = before
    self._changed: list[str] = []
    self._deleted = [set(entry.deleted) for entry in before.commit.segments]
    self._put = [np.zeros(segment.num_documents, bool) for segment in before.segments]
    self._pending: list[Document] = []
    self._characters = 0  # of those pending
    self._added: list[commits.SegmentEntry] = []
    self._embed = embed
    self._known: dict[Passage, np.ndarray] = {}  # embeddings of what is replaced

  def put(self, documents: Sequence[Document]) -> None:
    """Adds documents, in place of those that have their ids, unless these are the same."""
    places = self.before.find([document.id for document in documents])
    digests = content_digests(documents)
    for document, place, digest in zip(documents, places, digests, strict=True):
      if place is None:
        self.counts["added"] += 1
      else:
        self._put[place.segment][place.row] = True
        there = self.before.segments[place.segment].digests[place.row]
        if np.array_equal(there, digest):
          self.counts["unchanged"] += 1
          continue
        self.counts["updated"] += 1
        self.replaced.append(document.id)
        self._deleted[place.segment].add(place.row)
        self._known |= self.before.segments[place.segment].embeddings_of(place.row)
      self._pending.append(document)
      self._changed.append(document.id)
      self._characters += len(document.text)
    if self._characters >= _CHARACTERS_AT_ONCE:
      self._flush()

  def delete(self, places: Iterable[Place]) -> None:
    """Deletes documents."""
    for place in places:
      self.counts["deleted"] += 1
      self._changed.append(self.before.id(place))
      self._deleted[place.segment].add(place.row)

  def delete_others(self) -> None:
    """Deletes all documents but those that were put."""
    for number, live in enumerate(self.before.live):
      rows = np.flatnonzero(live & ~self._put[number]).tolist()
      self.delete(Place(number, row) for row in rows)

  def merge(self, numbers: Sequence[int]) -> None:
    """Replaces segments by one with their live documents."""
    before = self.before
    segments, live = [before.segments[i] for i in numbers], [before.live[i] for i in numbers]
    if any(mask.any() for mask in live):
      self._add(Segment.merge(segments, live))
    for i in numbers:
      self._deleted[i] = set(range(before.segments[i].num_documents))

  def commit(self) -> None:
    """Writes the commit; none if nothing changes."""
    self._flush()
    before = self.before.commit
    kept = [
      dataclasses.replace(entry, deleted=tuple(sorted(deleted)))
      for entry, deleted in zip(before.segments, self._deleted, strict=True)
      if len(deleted) < entry.num_documents
    ]
    segments = (*kept, *self._added)
    if segments != before.segments or self.settings != before.settings:
      after = dataclasses.replace(
        before,
        number=before.number + 1,
        settings=self.settings,
        segments=segments,
        folders=self.folders,
        history=(*self._change(), *before.history)[:_REMEMBERED],
      )
      commits.write(self._directory, after)
    if self._embed:
      self._embed.committed()

  def _change(self) -> list[commits.Change]:
    counts = {name: self.counts[name] for name in ("added", "updated", "deleted")}
    ids = tuple(self._changed[:_NAMED])
    return [commits.Change(time=time.time(), ids=ids, **counts)] if ids else []

  def _flush(self) -> None:
    if self._pending:
      languages = self.settings.languages
      languages = () if languages == commits.DETECTED else languages
      cut = passages.cutter(words=self.settings.passage_words)
      embed = functools.partial(self._embed, known=self._known) if self._embed else None
      self._add(Segment.of(self._pending, cut=cut, languages=languages, embed=embed))
      self._pending, self._known, self._characters = [], {}, 0

  def _add(self, segment: Segment) -> None:
    name = self.before.commit.new_segment(len(self._added))
    segment.write(commits.segment_path(self._directory, name))
    self._added.append(
      commits.SegmentEntry(
        name=name, num_documents=segment.num_documents, num_passages=segment.num_passages
      )
    )


def due(snapshot: Snapshot) -> list[list[int]]:
  """Returns the groups of segments to merge: several of about one size, and those with much deleted
  or with terms of an older version.

  The groups keep the number of segments at the logarithm of that of passages, and a passage is
  copied at most that often.
  """
  of_size: dict[int, list[int]] = collections.defaultdict(list)
  groups = []
  for number, (segment, live) in enumerate(zip(snapshot.segments, snapshot.live, strict=True)):
    size = int(np.count_nonzero(segment.of_passages(live)))
    if size < (1 - _MOST_DELETED) * segment.num_passages or segment.reanalyzed:
      groups.append([number])
    else:
      of_size[max(0, math.ceil(math.log(max(size, 1) / _SMALL, _FAN)))].append(number)
  return groups + [numbers for numbers in of_size.values() if len(numbers) >= _FAN]


def listed(ids: Sequence[str]) -> str:
  """Returns a few of some ids, and how many more there are."""
  more = len(ids) - _NAMED
  return ", ".join(map(repr, ids[:_NAMED])) + (f" and {more:,} more" if more > 0 else "")

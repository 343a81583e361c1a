"""A commit in the making: what is added, embedded and deleted, and which segments are merged."""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from realm_jax.corpus.documents import Document
from realm_jax.foundations import array_folder, array_shapes, progress
from realm_jax.knowledge_base.store import commits, passages
from realm_jax.knowledge_base.store.file_states import FileStates
from realm_jax.knowledge_base.store.segment import Segment, content_digests
from realm_jax.knowledge_base.store.snapshot import Place, Snapshot
from realm_jax.text.languages import Evidence, Recognized
from realm_jax.text.terminal import line

_KIND = array_folder.Kind(kind="staged", format=1, remake="delete it")
STAGED = "staged"  # where embeddings are kept until they are committed
_STAGED_SHAPES = {"digests": "u1 N 16", "embeddings": "f4 N E"}
_PASSAGES_AT_ONCE = 1024  # that a kill loses at most: under a minute with a small encoder
_CHARACTERS_AT_ONCE = 200_000_000  # of documents in memory before they become a segment
_FAN = 8  # segments of about one size that are merged
_SMALL = 512  # passages; smaller segments count as of one size
_MOST_DELETED = 0.2  # share of a segment's passages
_NAMED = 5  # documents of a change

Passage = tuple[str, str]  # title and text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
  """What a call changed, as numbers of documents.

  Attributes:
    kept: Documents that stay because their files could not be read.
    skipped: Lines that name the records without text, or that could not be read.
  """

  added: int = 0
  updated: int = 0
  unchanged: int = 0
  deleted: int = 0
  kept: int = 0
  skipped: tuple[str, ...] = ()

  def __str__(self) -> str:
    counts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)[:-1]}
    done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return "\n".join([f"documents: {done or 'nothing to change'}", *map(line, self.skipped)])


class Embedder:
  """Embeds passages; those that a killed process had embedded are not embedded again.

  Args:
    embed: Returns the embeddings `[N, E]` of passages.
  """

  def __init__(self, directory: str, model: str, embed: Callable[[Sequence[Passage]], np.ndarray]):
    self._folder, self._model, self._embed = os.path.join(directory, STAGED), model, embed
    self._used = False

  def __call__(
    self, passages: Sequence[Passage], *, known: Mapping[Passage, np.ndarray]
  ) -> np.ndarray:
    """Returns the embeddings `[N, E]` of passages, of which some are known."""
    staged, self._used = self._staged(), True
    distinct = dict.fromkeys(passages)
    found = {p: known[p] for p in distinct if p in known}
    found |= {p: staged[digest] for p in distinct if (digest := _digest(p)) in staged}
    # By length, so that each part has few lengths to compile and pad to.
    new = sorted((p for p in distinct if p not in found), key=lambda passage: len(passage[1]))
    firsts = range(0, len(new), _PASSAGES_AT_ONCE)
    parts = [new[first : first + _PASSAGES_AT_ONCE] for first in firsts]
    for number, part in enumerate(progress.track(parts, what="passages", size=len), start=1):
      found |= zip(part, computed_NxE := self._embed(part), strict=True)
      if number < len(parts):
        self._stage(part, computed_NxE)
    if len({embedding.shape for embedding in found.values()}) > 1:
      raise ValueError(f"{self._folder} has embeddings of another encoder; delete it")
    return np.stack([found[p] for p in passages]) if passages else self._embed([])

  def committed(self) -> None:
    """Removes what was kept for this change."""
    for path in self._paths() if self._used else ():
      os.unlink(path)

  def _stage(self, passages: Sequence[Passage], embeddings_NxE: np.ndarray) -> None:
    os.makedirs(self._folder, exist_ok=True)
    digests = np.frombuffer(b"".join(map(_digest, passages)), np.uint8)
    path = os.path.join(self._folder, f"{self._model}-{_digest(passages[0]).hex()}")
    arrays = {"digests": digests.reshape(len(passages), -1), "embeddings": embeddings_NxE}
    array_folder.write_file(path, arrays, kind=_KIND)

  def _staged(self) -> dict[bytes, np.ndarray]:
    """Returns embeddings by the digest of their passage."""
    found = {}
    for path in self._paths(of=f"{self._model}-"):
      with contextlib.suppress(ValueError):  # half written
        arrays, _ = array_folder.open_file(path, kind=_KIND, shapes=_STAGED_SHAPES)
        array_shapes.check_vectors("embeddings", arrays["embeddings"])
        found |= zip(map(bytes, arrays["digests"]), arrays["embeddings"], strict=True)
    return found

  def _paths(self, *, of: str = "") -> list[str]:
    with contextlib.suppress(FileNotFoundError):
      names = [name for name in os.listdir(self._folder) if name.startswith(of)]
      return [os.path.join(self._folder, name) for name in names]
    return []


def _digest(passage: Passage) -> bytes:
  title, text = passage
  return hashlib.blake2b(f"{len(title)} {title}{text}".encode(), digest_size=16).digest()


class Edit:
  """Changes to a snapshot that become visible together, when they are committed.

  Args:
    check: Checks that the folder is the one that the snapshot is of.
    embed: Embeds passages; None for no encoder.

  Attributes:
    before: The snapshot.
    settings: Those of the commit.
    sources: Those of the commit.
    states: Those of the files that were read; None if none were.
    counts: Documents `added`, `updated`, `unchanged`, `deleted` and `kept`.
    replaced: Ids of the documents that were there with another content.
    deleted: Ids of the documents that were deleted.
  """

  def __init__(
    self,
    directory: str,
    before: Snapshot,
    *,
    check: Callable[[], None],
    embed: Embedder | None = None,
  ):
    self.settings = before.commit.settings
    self.sources = before.commit.sources
    self.states: FileStates | None = None
    self.counts: collections.Counter[str] = collections.Counter()
    self.replaced: list[str] = []
    self.deleted: list[str] = []
    self._directory, self._check = directory, check
    self.before = before
    self._changed: list[str] = []
    self._elsewhere: set[str] = set()  # files of which a document is that of another
    self._gone: Callable[[str], bool] = lambda file: False  # whether a file is there no more
    self._deleted = [set(entry.deleted) for entry in before.commit.segments]
    self._put = [np.zeros(segment.num_documents, bool) for segment in before.segments]
    self._purged: frozenset[str] | None = None  # ids
    self._pending: list[Document] = []
    self._characters = 0  # of those pending
    self._added: list[commits.SegmentEntry] = []
    self._segments = [*before.segments]  # with those that are added
    self._embed = embed
    self._known: dict[Passage, np.ndarray] = {}  # embeddings of what is replaced

  def put(self, documents: Sequence[Document], *, replace: bool) -> None:
    """Adds documents, in place of those that have their ids, unless these are the same.

    Args:
      replace: Whether documents that are the same belong to the file that they are from now.
    """
    places = self.before.find([document.id for document in documents])
    digests = content_digests(documents)
    for document, place, digest in zip(documents, places, digests, strict=True):
      change = "added"
      if place is not None:
        file = self.before.file(place)
        if self._put[place.segment][place.row]:  # kept for a file that may not have it any more
          self.counts["unchanged"] -= 1
          self._elsewhere.add(file)
        self._put[place.segment][place.row] = True
        is_same = np.array_equal(self.before.digest(place), digest)
        change = "unchanged" if is_same else "updated"
        if is_same and (not replace or document.file in ("", file)):
          self.counts[change] += 1
          self._elsewhere |= {document.file} - {file}
          continue
        document = dataclasses.replace(document, file=document.file or file)
        self._deleted[place.segment].add(place.row)
        self._known |= self.before.segments[place.segment].embeddings_of(place.row)
      self.counts[change] += 1
      self._pending.append(document)
      self._characters += len(document.text)
      if change != "unchanged":
        self._changed.append(document.id)
      if change == "updated":
        self.replaced.append(document.id)
    if self._characters >= _CHARACTERS_AT_ONCE:
      self._flush()

  def delete(self, places: Iterable[Place]) -> None:
    """Deletes documents."""
    for place in places:
      self.counts["deleted"] += 1
      self.deleted.append(id := self.before.id(place))
      self._changed.append(id)
      self._deleted[place.segment].add(place.row)

  def keep(self, files: Collection[str]) -> None:
    """Keeps the documents of files that have not changed."""
    for number, rows in self._others(lambda file: file in files):
      self._put[number] |= rows
      self.counts["unchanged"] += int(np.count_nonzero(rows))

  def delete_others(
    self, were_given: Callable[[str], bool], *, unless: Callable[[str], bool]
  ) -> None:
    """Deletes the documents of some files, except for those that were put or kept.

    Args:
      were_given: Returns whether documents of a file are meant.
      unless: Returns whether they stay.
    """
    self._gone = lambda file: were_given(file) and not unless(file)
    for number, rows in self._others(self._gone):
      self.delete(Place(number, row) for row in np.flatnonzero(rows).tolist())
    stay = self._others(lambda file: were_given(file) and unless(file))
    self.counts["kept"] += sum(int(np.count_nonzero(rows)) for _, rows in stay)

  def _others(self, of_files: Callable[[str], bool]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields which documents of each segment are of some files and were not put, bool `[D]`."""
    pairs = zip(self.before.segments, self.before.live, strict=True)
    for number, (segment, live) in enumerate(pairs):
      are_meant_F = np.array([*map(of_files, segment.files)], bool)
      yield number, live & ~self._put[number] & are_meant_F[segment.files_D]

  def moved(self, ids: Collection[str], after: Snapshot) -> dict[str, str]:
    """Returns new ids of deleted documents, if one with the same text was added, as by a rename."""
    gone = [id for id in self.deleted if id in ids]
    places = filter(None, self.before.find(gone))
    texts = dict(zip(gone, (self.before.document(place).text for place in places), strict=True))
    wanted = {*texts.values()} - {""}
    added, found = {entry.name for entry in self._added}, dict[str, str]()
    for number, entry in enumerate(after.commit.segments):
      for row in range(entry.num_documents) if wanted and entry.name in added else ():
        document = after.document(Place(number, row))
        if document.text in wanted and self.before.find([document.id]) == [None]:
          found.setdefault(document.text, document.id)
    return {id: found[text] for id, text in texts.items() if text in found}

  def write_states(self, after: Snapshot) -> None:
    """Writes the states of the files that were read, after the commit."""
    if (states := self.states) is not None:
      states.write(after, unsettled=lambda: self._unsettled(states.broken), gone=self._gone)

  def _unsettled(self, broken: Collection[str]) -> set[str]:
    """Returns files of which a document is that of another, or was not put and no mistake keeps."""
    stay = self._others(lambda file: not (self._gone(file) or file in broken))
    found = zip(self.before.segments, stay, strict=True)
    return self._elsewhere.union(
      segment.files[file]
      for segment, (_, rows) in found
      for file in np.unique(segment.files_D[rows]).tolist()
    )

  def merge(self, numbers: Sequence[int]) -> None:
    """Replaces segments by one with their live documents."""
    before = self.before
    segments, live = [before.segments[i] for i in numbers], [before.live[i] for i in numbers]
    if any(mask.any() for mask in live):
      self._add(self._merged(segments, live))
    for i in numbers:
      self._deleted[i] = set(range(before.segments[i].num_documents))

  def _merged(self, segments: Sequence[Segment], live: Sequence[np.ndarray]) -> Segment:
    try:
      return Segment.merge(segments, live)
    except (IndexError, ValueError):
      self.before.check_values()
      raise

  def purge(self) -> None:
    """Leaves nothing of documents that are not there: no id, and no embedding of their passages."""
    ids = [id for change in self.before.commit.history for id in change.ids]
    self._purged = frozenset(self.before.missing(ids))
    shutil.rmtree(os.path.join(self._directory, STAGED), ignore_errors=True)

  def commit(self) -> None:
    """Writes the commit; none if nothing changes."""
    self._flush()
    self._read_again()
    before = self.before.commit
    segments = tuple(
      dataclasses.replace(entry, deleted=tuple(sorted(deleted)))
      for entry, deleted in zip((*before.segments, *self._added), self._deleted, strict=True)
      if len(deleted) < entry.num_documents
    )
    purges = self._purged is not None
    changes = (segments, self.settings, self.sources)
    if changes != (before.segments, before.settings, before.sources) or purges:
      after = dataclasses.replace(before, settings=self.settings, sources=self.sources)
      counts = {name: self.counts[name] for name in ("added", "updated", "deleted")}
      ids = tuple(self._changed[:_NAMED])
      change = [commits.Change(time=time.time(), ids=ids, **counts)] if ids else []
      after = after.after(*change, segments=segments)
      self._check()
      commits.write(self._directory, after if self._purged is None else after.without(self._purged))
    if self._embed:
      self._embed.committed()

  def _flush(self) -> None:
    if self._pending:
      given = self.settings.languages
      languages, choose = ((), self._choose) if given == commits.DETECTED else (given, None)
      cut = passages.cutter(words=self.settings.passage_words)
      embed = functools.partial(self._embed, known=self._known) if self._embed else None
      self._add(Segment.of(self._pending, cut=cut, languages=languages, choose=choose, embed=embed))
      self._pending, self._known, self._characters = [], {}, 0

  def _evidence(self) -> Evidence:
    """Returns what all documents tell of their languages."""
    evidence = Evidence()
    for segment, deleted in zip(self._segments, self._deleted, strict=True):
      for found, _, count, size in segment.kinds(deleted):
        evidence.add(found, size=size, texts=count)
    return evidence

  def _choose(self, found: Sequence[Recognized], sizes: Sequence[int]) -> list[str]:
    """Returns the languages that new documents are read in, among the others."""
    evidence = self._evidence()
    for one, size in zip(found, sizes, strict=True):
      evidence.add(one, size=size)
    return [*map(evidence.mixture().language_of, found)]

  def _read_again(self) -> None:
    """Reads documents in the languages that the others now imply, so that no search depends on what
    was there before."""
    if self.settings.languages != commits.DETECTED:
      return
    language_of, misread = self._evidence().mixture().language_of, {}
    for number, (segment, deleted) in enumerate(zip(self._segments, self._deleted, strict=True)):
      if any(language_of(found) != language for found, language, *_ in segment.kinds(deleted)):
        mask = segment.of_kind(lambda found, language: language_of(found) != language)
        mask[[*deleted]] = False
        misread[number] = mask
    if misread:
      self._add(
        self._merged([self._segments[i] for i in misread], [*misread.values()]).read_in(language_of)
      )
      for number, mask in misread.items():
        self._deleted[number] |= {*np.flatnonzero(mask).tolist()}

  def _add(self, segment: Segment) -> None:
    name = self.before.commit.new_segment()
    path = commits.segment_path(self._directory, name)
    segment.write(path)
    self._segments.append(Segment.open(path))
    if len({of.embedding_size for of in self._segments}) > 1:
      raise ValueError(
        f"the encoder of {self._directory} is not the one that embedded its passages"
      )
    self._deleted.append(set())
    self._added.append(
      commits.SegmentEntry(
        name=name, num_documents=segment.num_documents, num_passages=segment.num_passages
      )
    )


def due(snapshot: Snapshot) -> list[list[int]]:
  """Returns the groups of segments to merge.

  A group has several of about one size, or one of which much is deleted. The groups keep the number
  of segments at the logarithm of that of passages, and a passage is copied at most that often.
  """
  of_size: dict[int, list[int]] = collections.defaultdict(list)
  groups = []
  for number, (segment, live) in enumerate(zip(snapshot.segments, snapshot.live, strict=True)):
    size = int(np.count_nonzero(segment.of_passages(live)))
    if size < (1 - _MOST_DELETED) * segment.num_passages:
      groups.append([number])
    else:
      of_size[max(0, math.ceil(math.log(max(size, 1) / _SMALL, _FAN)))].append(number)
  return groups + [numbers for numbers in of_size.values() if len(numbers) >= _FAN]


def listed(ids: Sequence[str]) -> str:
  """Returns a few of some ids, and how many more there are."""
  more = len(ids) - _NAMED
  return ", ".join(map(repr, ids[:_NAMED])) + (f" and {more:,} more" if more > 0 else "")

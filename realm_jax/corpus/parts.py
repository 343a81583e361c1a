"""Corpus building as a pure function from records to rows of a store.

`local_pipeline` or `beam_pipeline` runs it over any division of the records into parts; the parts,
concatenated in order, give the same corpus.
"""

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import numpy as np
from absl import logging

from realm_jax.corpus.chunking import ChunkingConfig, make_passages
from realm_jax.corpus.documents import BadRecord, BadRecords, Document, Record, UidSet
from realm_jax.corpus.passage_store import (
  PassageRow,
  PassageStoreWriter,
  StoreMetadata,
  id_dtype,
  passage_row,
)
from realm_jax.corpus.tagged_examples import TaggedExampleWriter, serialize

_UNKNOWN = (0.01, 0.2)  # shares of the wordpieces: more are warned of, or refused
_ENOUGH_TO_JUDGE = 1_000  # wordpieces

_TITLE = re.compile(r"(?:List|Index|Outline) of .|.*\(disambiguation\)")
_FIRST_LINE = re.compile(
  r"[^.\n]{1,100}\b(?:may|can|could|might) (?:also )?"
  r"(?:refer to|mean|stand for)\b[^.\n]{0,40}:\s*$",
  re.MULTILINE,
)


def is_list_or_disambiguation(title: str, text: str) -> bool:
  """Returns whether a page lists other pages, judged by its title and its first line."""
  return bool(_TITLE.match(title) or _FIRST_LINE.match(text))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusPart:
  """The passages of consecutive records.

  Attributes:
    examples: The same passages as serialised tagged examples.
    counts: Counts of documents, bad records, splits and so on.
    ids: Ids of the documents.
  """

  rows: Sequence[PassageRow]
  examples: Sequence[bytes]
  counts: Counter
  bad_records: Sequence[BadRecord]
  ids: Sequence[str]

  def to_bytes(self) -> bytes:
    """Serialises the part."""
    bad_records = list(map(dataclasses.asdict, self.bad_records))
    return msgpack.Packer().pack([self.rows, self.examples, self.counts, bad_records, self.ids])

  @classmethod
  def from_bytes(cls, content: bytes) -> "CorpusPart":
    """Restores a part."""
    rows, examples, counts, bad_records, ids = msgpack.unpackb(content)
    return cls(
      rows=[PassageRow(*row) for row in rows],
      examples=examples,
      counts=Counter(counts),
      bad_records=[BadRecord(**fields) for fields in bad_records],
      ids=ids,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartMaker:
  """Makes parts; can be pickled and sent to other processes and machines.

  Attributes:
    tokenizer: A `WordPieceTokenizer`.
    tag: Finds the salient spans (byte offsets) of a text in a language.
    languages: The languages of the corpus.
  """

  tokenizer: Any
  tag: Callable[[str, str], Sequence[tuple[int, int]]]
  chunking: ChunkingConfig
  drop_list_pages: bool
  languages: Sequence[str] = ("en",)

  def __call__(self, records: Sequence[Record]) -> CorpusPart:
    """Returns the part made from these records."""
    bad_records = [record for record in records if isinstance(record, BadRecord)]
    counts = Counter(bad.kind for bad in bad_records)
    documents = [record for record in records if isinstance(record, Document)]
    counts["documents"] = len(documents)
    ids = [document.id for document in documents]
    if self.drop_list_pages:
      prose = [d for d in documents if not is_list_or_disambiguation(d.title, d.text)]
      counts["list_pages_dropped"] = len(documents) - len(prose)
      documents = prose
    passages = make_passages(
      documents,
      tokenizer=self.tokenizer,
      tag=self.tag,
      config=self.chunking,
      counts=counts,
      languages=self.languages,
    )
    rows, examples = [], []
    for passage in passages:
      rows.append(passage_row(passage, vocab_size=self.tokenizer.vocab_size))
      examples.append(serialize(passage))
    return CorpusPart(
      rows=rows, examples=examples, counts=+counts, bad_records=bad_records, ids=ids
    )


class CorpusWriter:
  """Writes parts in order, without duplicate passages, as a store and as tagged examples.

  Args:
    directory: An empty directory.
    num_shards: Number of files of tagged examples.
  """

  def __init__(self, directory: str, *, make_part: PartMaker, num_shards: int):
    self._directory, self._languages = directory, make_part.languages
    self._tokenizer = tokenizer = make_part.tokenizer
    length = make_part.chunking.max_passage_length
    self._store = PassageStoreWriter(directory, tokenizer=tokenizer, max_passage_length=length)
    self._examples = TaggedExampleWriter(directory, num_shards=num_shards)
    self._id_dtype = id_dtype(tokenizer.vocab_size)
    self._uids = UidSet()
    self._counts: Counter = Counter()
    self._bad = BadRecords()

  def append(self, part: CorpusPart) -> None:
    """Adds the passages that no earlier part has."""
    self._counts.update(part.counts)
    for bad in part.bad_records:
      self._bad.add(bad)
    self._bad.add_ids(part.ids)
    new = self._uids.add([row.uid for row in part.rows])
    self._counts["duplicate_passages"] += new.count(False)
    self._counts["passages"] += new.count(True)
    for row, example, is_new in zip(part.rows, part.examples, new, strict=True):
      if is_new:
        ids = np.frombuffer(row.body_ids, self._id_dtype)
        self._counts["wordpieces"] += len(ids)
        self._counts["unknown_wordpieces"] += int(np.count_nonzero(ids == self._tokenizer.unk_id))
        self._store.append_row(row)
        self._examples.write(example)

  def finish(self, source: str) -> StoreMetadata:
    """Completes the corpus; warns if the vocabulary lacks too many of its words.

    Raises:
      ValueError: If there are no passages, or the vocabulary is one of other languages.
    """
    self._examples.close()
    if not self._counts["passages"]:
      raise ValueError(f"no text in {source!r}: {self.report()}")
    share = self._counts["unknown_wordpieces"] / max(self._counts["wordpieces"], _ENOUGH_TO_JUDGE)
    if share > _UNKNOWN[0]:
      says = f"the vocabulary does not know {share:.1%} of the wordpieces of {source!r}"
      says += "; learn one with another --vocabulary and --vocab_size"
      if share > _UNKNOWN[1]:
        raise ValueError(f"{says}, or take an encoder of these languages")
      logging.warning("%s", says)
    self._tokenizer.save(os.path.join(self._directory, "vocabulary"))
    return self._store.finish(counts=self._counts, languages=self._languages)

  def report(self) -> str:
    """Returns the counts, and names bad records and repeated ids."""
    counts = dict(sorted(self._counts.items()))
    if self._counts["wordpieces"]:
      counts.pop("unknown_wordpieces")
    lines = [", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())]
    if self._counts["wordpieces"]:
      share = self._counts["unknown_wordpieces"] / self._counts["wordpieces"]
      lines[0] += f", {share:.3%} of the wordpieces unknown"
    return "\n".join([*lines, *self._bad.report()])

"""Corpus building as a pure function from records to rows of a store.

A process pool or a pipeline engine runs it over any division of the records into parts; the parts,
concatenated in order, give the same corpus.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.documents import BadRecord, Document, Record
from realm_jax.corpus.passage_store import PassageRow, passage_row
from realm_jax.corpus.passages import Passage, make_passages

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
    serialize: Turns a `Passage` into a tagged example.
    languages: The languages of the corpus.
  """

  tokenizer: Any
  tag: Callable[[str, str], Sequence[tuple[int, int]]]
  serialize: Callable[[Passage], bytes]
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
    rows, examples = [], []
    for passage in make_passages(
      documents,
      tokenizer=self.tokenizer,
      tag=self.tag,
      config=self.chunking,
      counts=counts,
      languages=self.languages,
    ):
      rows.append(
        passage_row(
          title=passage.title,
          text=passage.text,
          title_ids=passage.title_ids,
          body_ids=passage.body_ids,
          uid=passage.uid,
          vocab_size=self.tokenizer.vocab_size,
          document=passage.document,
        )
      )
      examples.append(self.serialize(passage))
    return CorpusPart(
      rows=rows, examples=examples, counts=+counts, bad_records=bad_records, ids=ids
    )

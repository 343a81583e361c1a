"""The knowledge corpus: rows of passages, memory-mapped or made of texts in memory.

A store is an array folder of columns with offsets, written once and never changed. Columns are
mapped, not loaded, so a store may be larger than memory.
"""

import abc
import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from realm_jax.foundations import array_folder, object_store
from realm_jax.foundations.array_folder import FOLDER_FILE, Folder, FolderKind
from realm_jax.text import wordpieces
from realm_jax.text.wordpieces import Tokenizer, WordPieces

SPECIAL_TOKENS_PER_PASSAGE = 3  # [CLS] title [SEP] body [SEP]
BODY_SHARE = 4  # a title leaves the body one wordpiece of so many

# With the tagged examples, the vocabulary, and the index of BM25 that is made when it is needed.
CORPUS = FolderKind(
  name="a prepared corpus",
  kind="corpus",
  format=2,
  remake="write it with `realm prepare_corpus`",
  files=(
    *(FOLDER_FILE, "*.bin", "examples-*-of-*.tfrecord.gz"),
    *("vocabulary/vocab.txt", "vocabulary/tokenizer_config.json"),
    *(f"bm25/{FOLDER_FILE}", "bm25/*.bin"),
  ),
)


def passage_uid(title: str, text: str) -> int:
  """Returns 63 bits of the SHA-1 of title and text, never 0."""
  digest = hashlib.sha1(f"{title}\x1f{text}".encode()).digest()
  return (int.from_bytes(digest[:8], "big") >> 1) or 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreMetadata:
  """Description of a passage store.

  Attributes:
    fingerprint: Digest of the vocabulary and all columns except document names; equal fingerprints
      mean equal passages.
    vocabulary_digest: Digest of the tokenizer that made the ids.
    max_passage_length: Maximum wordpieces of `[CLS] title [SEP] body [SEP]`.
    counts: Counts of documents, bad records and so on from reading the corpus.
    languages: The languages of the passages.
  """

  num_passages: int
  fingerprint: str
  vocabulary_digest: str
  vocab_size: int
  cls_id: int
  sep_id: int
  max_passage_length: int
  counts: dict[str, int]
  languages: tuple[str, ...] = ("en",)


Rows = Sequence[int] | np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passage:
  """A passage; offsets `(start, limit)` are in bytes of `text`, the ids exclude special tokens.

  Attributes:
    document: Name of its document; may be empty.
    sentences: Offsets of its sentences.
    spans: Offsets of its salient spans.
  """

  title: str
  text: str
  uid: int
  document: str = ""
  title_ids: Sequence[int] | np.ndarray = ()
  body_ids: Sequence[int] | np.ndarray = ()
  sentences: Sequence[tuple[int, int]] = ()
  spans: Sequence[tuple[int, int]] = ()


class PassageRow(NamedTuple):
  """A passage as bytes on disk."""

  titles: bytes
  texts: bytes
  title_ids: bytes
  body_ids: bytes
  documents: bytes
  uid: int


def passage_row(passage: Passage, *, vocab_size: int) -> PassageRow:
  """Returns a passage as bytes, with ids in the dtype for a vocabulary of this size."""
  dtype = id_dtype(vocab_size)
  return PassageRow(
    titles=passage.title.encode(),
    texts=passage.text.encode(),
    title_ids=np.asarray(passage.title_ids, dtype).tobytes(),
    body_ids=np.asarray(passage.body_ids, dtype).tobytes(),
    documents=passage.document.encode(),
    uid=passage.uid,
  )


class PassageStoreWriter:
  """Writes a passage store row by row into an empty directory, keeping no rows in memory."""

  def __init__(self, directory: str | os.PathLike, *, tokenizer, max_passage_length: int):
    self._tokenizer = tokenizer
    self._max_passage_length = max_passage_length
    self._folder = array_folder.Writer(directory, kind=CORPUS)
    self._uids = self._folder.column("uids", "int64")
    self._columns = [
      (self._folder.column(name, dtype), self._folder.column(f"{name}.offsets", "int64"))
      for name, dtype in _dtypes(tokenizer.vocab_size).items()
    ]
    for _, offsets in self._columns:
      offsets.append(bytes(8))

  def append(self, passage: Passage) -> None:
    """Adds a passage."""
    self.append_row(passage_row(passage, vocab_size=self._tokenizer.vocab_size))

  def append_row(self, row: PassageRow) -> None:
    """Adds a row whose ids come from this writer's vocabulary."""
    for (values, offsets), data in zip(self._columns, row[:-1], strict=True):
      values.append(data)
      offsets.append(len(values).to_bytes(8, "little"))
    self._uids.append(row.uid.to_bytes(8, "little"))

  def finish(self, *, counts: dict[str, int], languages: Sequence[str] = ("en",)) -> StoreMetadata:
    """Writes what makes the directory a store."""
    records = self._folder.records()
    decisive = {name: record for name, record in records.items() if "documents" not in name}
    metadata = StoreMetadata(
      num_passages=len(self._uids),
      fingerprint=array_folder.digest(decisive, self._tokenizer.digest),
      vocabulary_digest=self._tokenizer.digest,
      vocab_size=self._tokenizer.vocab_size,
      cls_id=self._tokenizer.cls_id,
      sep_id=self._tokenizer.sep_id,
      max_passage_length=self._max_passage_length,
      counts=dict(sorted(counts.items())),
      languages=tuple(languages),
    )
    self._folder.finish(metadata)
    return metadata


def _dtypes(vocab_size: int) -> dict[str, np.dtype]:
  """Returns the dtypes of the columns of a `PassageRow` except for its uid."""
  of_ids = {"title_ids": id_dtype(vocab_size), "body_ids": id_dtype(vocab_size)}
  return {name: of_ids.get(name, np.dtype("u1")) for name in PassageRow._fields[:-1]}


def id_dtype(vocab_size: int) -> np.dtype:
  """Returns the smallest dtype that can hold every wordpiece id."""
  return np.dtype(np.uint16 if vocab_size <= 2**16 else np.int32)


class Passages(abc.ABC):
  """Rows of passages, as retrieval reads them."""

  metadata: StoreMetadata
  # Columns of ids, each as values and offsets.
  _title_ids: tuple[np.ndarray, np.ndarray]
  _body_ids: tuple[np.ndarray, np.ndarray]

  @abc.abstractmethod
  def __len__(self) -> int: ...

  @abc.abstractmethod
  def title(self, row: int) -> str: ...

  @abc.abstractmethod
  def text(self, row: int) -> str: ...

  def title_ids(self, rows: Rows, *, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns int32 ids `[rows, length]`, truncated or padded with 0, and the lengths `[rows]`."""
    return _padded_rows(self._title_ids, rows, length)

  def body_ids(self, rows: Rows, *, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns int32 ids `[rows, length]`, truncated or padded with 0, and the lengths `[rows]`."""
    return _padded_rows(self._body_ids, rows, length)

  def lengths(self) -> np.ndarray:
    """Returns the number of wordpieces `[N]` of each `[CLS] title [SEP] body [SEP]`."""
    ids = np.diff(self._title_ids[1]) + np.diff(self._body_ids[1])
    return SPECIAL_TOKENS_PER_PASSAGE + ids

  def length_quantiles(self) -> tuple[int, ...]:
    """Returns 65 quantiles of `lengths`, from the shortest to the longest passage."""
    if not len(self):
      return ()
    return tuple(np.quantile(self.lengths(), np.linspace(0, 1, 65)).astype(int).tolist())


class TokenizedPassages(Passages):
  """Titles and texts in memory, tokenized.

  Args:
    passages: Title and text of each passage.
    max_length: Wordpieces of `[CLS] title [SEP] body [SEP]`; longer bodies are cut.
  """

  def __init__(self, passages: Sequence[tuple[str, str]], *, tokenizer: Tokenizer, max_length: int):
    self._passages = passages
    titles, texts = (tokenizer.encode_batch([p[side] for p in passages]) for side in (0, 1))
    self._title_ids = _column(titles)
    self._body_ids = _column([ids[: max_length - SPECIAL_TOKENS_PER_PASSAGE] for ids in texts])
    self.metadata = StoreMetadata(
      num_passages=len(passages),
      fingerprint="",
      vocabulary_digest=tokenizer.digest,
      vocab_size=tokenizer.vocab_size,
      cls_id=tokenizer.cls_id,
      sep_id=tokenizer.sep_id,
      max_passage_length=max_length,
      counts={},
    )

  def __len__(self) -> int:
    return len(self._passages)

  def title(self, row: int) -> str:
    return self._passages[row][0]

  def text(self, row: int) -> str:
    return self._passages[row][1]


class PassageStore(Passages):
  """Read-only view of a passage store and its vocabulary.

  One in an object store is copied to the local cache: texts when they are first read, because
  trainers and index builders read only ids.

  Raises:
    FileNotFoundError: If the directory is not a store.
    ValueError: If a column does not match the metadata.
  """

  def __init__(self, directory: str | os.PathLike):
    self._folder = Folder(directory, kind=CORPUS, of=StoreMetadata)
    self.directory, self.local_directory = self._folder.directory, self._folder.local_directory
    self.metadata = self._folder.description
    shapes = {"uids": "i8 N"}
    for name, dtype in _dtypes(self.metadata.vocab_size).items():
      shapes |= {name: f"{dtype.str[1:]} {name}", f"{name}.offsets": "i8 N+1"}
    self._folder.check(shapes, N=self.metadata.num_passages)
    self.uids = self._folder.mapped(["uids"])["uids"]
    self._title_ids, self._body_ids = self._open("title_ids", "body_ids")
    if not object_store.is_remote(self.directory):
      _ = self._titles, self._texts, self._documents  # checked before they are needed

  @functools.cached_property
  def _titles(self) -> tuple[np.ndarray, np.ndarray]:
    return self._open("titles")[0]

  @functools.cached_property
  def _texts(self) -> tuple[np.ndarray, np.ndarray]:
    return self._open("texts")[0]

  @functools.cached_property
  def _documents(self) -> tuple[np.ndarray, np.ndarray]:
    return self._open("documents")[0]

  def _open(self, *names: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the values and offsets of some columns."""
    arrays = self._folder.mapped(part for name in names for part in (name, f"{name}.offsets"))
    for name in names:
      if arrays[f"{name}.offsets"][-1] != len(arrays[name]):
        raise ValueError(f"{self.directory} has other {name} than their offsets; {CORPUS.remake}")
    return [(arrays[name], arrays[f"{name}.offsets"]) for name in names]

  def __len__(self) -> int:
    return self.metadata.num_passages

  @property
  def fingerprint(self) -> str:
    return self.metadata.fingerprint

  @property
  def vocabulary_directory(self) -> str:
    return os.path.join(self.directory, "vocabulary")

  @functools.cached_property
  def vocabulary(self) -> WordPieces:
    """The vocabulary that made the ids.

    Raises:
      ValueError: If the vocabulary beside the passages is another.
    """
    vocabulary = wordpieces.load(self.vocabulary_directory)
    if vocabulary.digest != self.metadata.vocabulary_digest:
      raise ValueError(
        f"{self.vocabulary_directory} is {vocabulary.digest}, but its passages were made with "
        f"{self.metadata.vocabulary_digest}; prepare the corpus again"
      )
    return vocabulary

  @functools.cached_property
  def tokenizer(self) -> Tokenizer:
    """The vocabulary as a tokenizer, which needs TensorFlow."""
    from realm_jax.text import tokenization

    loaded = self.vocabulary
    return tokenization.WordPieceTokenizer(
      loaded.vocabulary, lower_case=loaded.lower_case, strip_accents=loaded.strip_accents
    )

  @functools.cached_property
  def rows_by_uid(self) -> np.ndarray:
    """The rows in the order of their uids."""
    return np.argsort(self.uids)

  def title(self, row: int) -> str:
    return _row(self._titles, row).tobytes().decode()

  def text(self, row: int) -> str:
    return _row(self._texts, row).tobytes().decode()

  def document(self, row: int) -> str:
    """Returns the name of the passage's document; empty if it has none."""
    return _row(self._documents, row).tobytes().decode()


def titled_text(store, row: int) -> str:
  """Returns the title and text of a passage, which BM25 searches."""
  return f"{store.title(row)}\n{store.text(row)}"


def _row(column: tuple[np.ndarray, np.ndarray], row: int) -> np.ndarray:
  values, offsets = column
  return values[offsets[row] : offsets[row + 1]]


def _padded_rows(
  column: tuple[np.ndarray, np.ndarray], rows: Rows, length: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns rows of a column, values and offsets, truncated or padded with 0; and their lengths."""
  values, offsets = column
  row_n = np.asarray(rows, np.int64)
  starts = offsets[row_n]
  lengths = np.minimum(offsets[row_n + 1] - starts, length)
  columns = np.arange(length)
  inside = columns < lengths[:, None]
  padded = np.zeros(inside.shape, np.int32)
  padded[inside] = values[(starts[:, None] + columns)[inside]]
  return padded, lengths


def _column(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  ends = [*itertools.accumulate(map(len, rows), initial=0)]
  return np.concatenate([np.zeros(0, np.int32), *rows]), np.array(ends)

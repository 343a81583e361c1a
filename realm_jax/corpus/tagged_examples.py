"""Tagged passages on disk: GZIP TFRecords in the original system's layout, plus the passage's uid.

Each `tf.train.Example` is one passage: `title`, `text` (bytes), `uid` (int64), and byte offsets
into `text`: `sentence_byte_start`, `sentence_byte_limit`, `span_byte_start`, `span_byte_limit`
(int64 lists). They lie in the order of a hash of their content, which is random, so any stretch of
a file is a sample of the corpus. TensorFlow is imported only where records are read or written, so
that jobs can import this module without it.
"""

import hashlib
import heapq
import os
import re
import tempfile
from collections.abc import Iterator
from typing import IO

from realm_jax.corpus.input_files import input_files
from realm_jax.corpus.passage_store import Passage
from realm_jax.foundations import object_store

FILE_PATTERN = "examples-*-of-*.tfrecord.gz"
_SORT_BYTES = 2**27
_HASH_BYTES = 8


class TaggedExampleWriter:
  """Writes tagged passages in the order of their hash, round-robin into a number of shards.

  Examples above `sort_bytes` wait in sorted temporary files, so memory is bounded.
  """

  def __init__(
    self, directory: str | os.PathLike, *, num_shards: int, sort_bytes: int = _SORT_BYTES
  ):
    self._directory, self._num_shards, self._sort_bytes = directory, num_shards, sort_bytes
    self._runs: list[IO[bytes]] = []
    self._waiting: list[tuple[bytes, bytes]] = []
    self._num_bytes = 0

  def write(self, example: bytes) -> None:
    """Adds a passage that `serialize` turned into bytes."""
    self._waiting.append((hashlib.blake2b(example, digest_size=_HASH_BYTES).digest(), example))
    self._num_bytes += len(example)
    if self._num_bytes > self._sort_bytes:
      run = tempfile.TemporaryFile(dir=self._directory)
      for key, example in sorted(self._waiting):
        run.write(key + len(example).to_bytes(4) + example)
      self._runs.append(run)
      self._waiting, self._num_bytes = [], 0

  def close(self) -> None:
    """Writes the shards."""
    names = (f"examples-{i:05d}-of-{self._num_shards:05d}" for i in range(self._num_shards))
    writers = [_open_writer(os.path.join(self._directory, f"{name}.tfrecord.gz")) for name in names]
    merged = heapq.merge(*map(_read_run, self._runs), sorted(self._waiting))
    for number, (_, example) in enumerate(merged):
      writers[number % self._num_shards].write(example)
    for file in (*writers, *self._runs):
      file.close()


def _read_run(run: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
  run.seek(0)
  while key := run.read(_HASH_BYTES):
    yield key, run.read(int.from_bytes(run.read(4)))


def feature_description() -> dict:
  """Returns the feature description with which TensorFlow parses an example."""
  import tensorflow as tf

  return {
    "title": tf.io.FixedLenFeature([], tf.string, ""),
    "text": tf.io.FixedLenFeature([], tf.string),
    "uid": tf.io.FixedLenFeature([], tf.int64, 0),
    **{
      f"{kind}_byte_{end}": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
      for kind in ("sentence", "span")
      for end in ("start", "limit")
    },
  }


def serialize(passage: Passage) -> bytes:
  """Serializes a passage; equal passages give equal bytes."""
  from tensorflow import train

  texts = {"title": passage.title, "text": passage.text}
  numbers = {
    "uid": [passage.uid],
    "sentence_byte_start": [start for start, _ in passage.sentences],
    "sentence_byte_limit": [limit for _, limit in passage.sentences],
    "span_byte_start": [start for start, _ in passage.spans],
    "span_byte_limit": [limit for _, limit in passage.spans],
  }
  example = train.Example()
  features = example.features.feature  # filled in place, because messages are copied into messages
  for name, text in texts.items():
    features[name].bytes_list.value.append(text.encode())
  for name, values in numbers.items():
    features[name].int64_list.SetInParent()  # present even if there are no values
    features[name].int64_list.value.extend(values)
  # Map entries have no defined order; another process may serialize them differently.
  return example.SerializeToString(deterministic=True)


def files(directory: str | os.PathLike) -> list[str]:
  """Returns the shards of a directory in order; those of an object store in the local cache.

  Raises:
    FileNotFoundError: If there is none.
    ValueError: If shards are missing.
  """
  local = object_store.local_copy(directory, FILE_PATTERN)
  found = input_files(os.path.join(local, FILE_PATTERN))
  number = int(re.findall(r"-of-(\d+)", os.path.basename(found[0]))[0])
  if len(found) != number:
    raise ValueError(
      f"{os.fspath(directory)} holds {len(found)} of {number} shards; run the job that "
      "wrote it again"
    )
  return found


def fingerprint(directory: str | os.PathLike) -> str:
  """Returns a digest of a directory's shards, computed from their GZIP checksums."""
  digest = hashlib.sha256()
  for path in files(directory):
    with open(path, "rb") as file:
      size = file.seek(0, os.SEEK_END)
      file.seek(max(size - 8, 0))
      digest.update(file.read())  # GZIP's CRC-32 and length of the content
  return digest.hexdigest()[:16]


def read_shard(path: str | os.PathLike) -> Iterator[Passage]:
  """Yields the passages of a file in order."""
  import tensorflow as tf

  records = tf.data.TFRecordDataset(os.fspath(path), compression_type="GZIP")
  for record in records.as_numpy_iterator():
    features = tf.train.Example.FromString(record).features.feature
    yield Passage(
      title=features["title"].bytes_list.value[0].decode(),
      text=features["text"].bytes_list.value[0].decode(),
      uid=features["uid"].int64_list.value[0],
      sentences=_offsets(features, "sentence"),
      spans=_offsets(features, "span"),
    )


def _open_writer(path: str):
  from tensorflow import io

  # Fast compression: a pre-training epoch reads each record once, and the text is short.
  options = io.TFRecordOptions(compression_type="GZIP", compression_level=1)
  return io.TFRecordWriter(path, options)


def _offsets(features, kind: str) -> tuple[tuple[int, int], ...]:
  starts, limits = (features[f"{kind}_byte_{end}"].int64_list.value for end in ("start", "limit"))
  return tuple(zip(starts, limits, strict=True))

"""Tagged passages on disk: GZIP TFRecords in the original system's layout, plus the passage's uid.

One `tf.train.Example` a passage: `title`, `text` (bytes), `uid` (int64), and byte offsets into
`text`: `sentence_byte_start`, `sentence_byte_limit`, `span_byte_start`, `span_byte_limit` (int64
lists).
"""

import os
import re
from collections.abc import Sequence

import tensorflow as tf

from realm_jax import object_store
from realm_jax.corpus.documents import input_files

FILE_PATTERN = "examples-*-of-*.tfrecord.gz"
FEATURE_DESCRIPTION = {
  "title": tf.io.FixedLenFeature([], tf.string, ""),
  "text": tf.io.FixedLenFeature([], tf.string),
  "uid": tf.io.FixedLenFeature([], tf.int64, 0),
  **{
    f"{kind}_byte_{end}": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    for kind in ("sentence", "span")
    for end in ("start", "limit")
  },
}


class TaggedExampleWriter:
  """Writes tagged passages into a fixed number of shards, in turn.

  Args:
    directory: an existing directory.
    num_shards: files to write.

  Raises:
    ValueError: if there is to be no file.
  """

  def __init__(self, directory: str | os.PathLike, *, num_shards: int):
    if num_shards < 1:
      raise ValueError(f"num_shards={num_shards}; write at least one")
    # Fast compression: a pre-training epoch reads each record once and the text is short.
    options = tf.io.TFRecordOptions(compression_type="GZIP", compression_level=1)
    self._writers = [
      tf.io.TFRecordWriter(
        os.path.join(directory, f"examples-{shard:05d}-of-{num_shards:05d}.tfrecord.gz"), options
      )
      for shard in range(num_shards)
    ]
    self._written = 0

  def append(
    self,
    *,
    title: str,
    text: str,
    uid: int,
    sentences: Sequence[tuple[int, int]],
    spans: Sequence[tuple[int, int]],
  ) -> None:
    """Adds a passage; `sentences` and `spans` are byte offsets `(start, limit)` into `text`."""
    self.write(serialize(title=title, text=text, uid=uid, sentences=sentences, spans=spans))

  def write(self, example: bytes) -> None:
    """Adds a passage that `serialize` has turned into bytes."""
    self._writers[self._written % len(self._writers)].write(example)
    self._written += 1

  def close(self) -> None:
    for writer in self._writers:
      writer.close()


def serialize(
  *,
  title: str,
  text: str,
  uid: int,
  sentences: Sequence[tuple[int, int]],
  spans: Sequence[tuple[int, int]],
) -> bytes:
  """Returns a passage as an example; equal passages give equal bytes."""
  features = {
    "title": _bytes(title),
    "text": _bytes(text),
    "uid": _ints([uid]),
    "sentence_byte_start": _ints([start for start, _ in sentences]),
    "sentence_byte_limit": _ints([limit for _, limit in sentences]),
    "span_byte_start": _ints([start for start, _ in spans]),
    "span_byte_limit": _ints([limit for _, limit in spans]),
  }
  example = tf.train.Example(features=tf.train.Features(feature=features))
  # A map has no order of its own, and another process might choose another one.
  return example.SerializeToString(deterministic=True)


def files(directory: str | os.PathLike) -> list[str]:
  """Returns the shards of a directory in order; those of an object store in the local cache.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if there are not as many as their names say.
  """
  local = object_store.local_copy(directory, FILE_PATTERN)
  found = input_files(os.path.join(local, FILE_PATTERN))
  number = int(re.search(r"-of-(\d+)", os.path.basename(found[0])).group(1))
  if len(found) != number:
    raise ValueError(
      f"{os.fspath(directory)} holds {len(found)} of {number} shards; run again what was writing it"
    )
  return found


def _bytes(value: str) -> tf.train.Feature:
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))


def _ints(values: Sequence[int]) -> tf.train.Feature:
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

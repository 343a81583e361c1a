"""Reads one shard of tagged passages, and writes one that appears whole or not at all."""

import dataclasses
import os
from collections.abc import Iterable, Iterator

import tensorflow as tf

from realm_jax.data import tagged_examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggedPassage:
  """A passage; `sentences` and `spans` are byte offsets `(start, limit)` into `text`."""

  title: str
  text: str
  uid: int
  sentences: tuple[tuple[int, int], ...]
  spans: tuple[tuple[int, int], ...]


def read_shard(path: str | os.PathLike) -> Iterator[TaggedPassage]:
  """Yields the passages of a file in order."""
  records = tf.data.TFRecordDataset(os.fspath(path), compression_type="GZIP")
  for record in records.as_numpy_iterator():
    features = tf.train.Example.FromString(record).features.feature
    yield TaggedPassage(
      title=features["title"].bytes_list.value[0].decode(),
      text=features["text"].bytes_list.value[0].decode(),
      uid=features["uid"].int64_list.value[0],
      sentences=_offsets(features, "sentence"),
      spans=_offsets(features, "span"),
    )


def write_shard(path: str | os.PathLike, passages: Iterable[TaggedPassage]) -> int:
  """Writes the passages under another name and renames the finished file; returns their number."""
  directory, name = os.path.split(os.fspath(path))
  unfinished = os.path.join(directory, f".unfinished.{name}")
  options = tf.io.TFRecordOptions(compression_type="GZIP", compression_level=1)
  count = 0
  with tf.io.TFRecordWriter(unfinished, options) as writer:
    for passage in passages:
      writer.write(tagged_examples.serialize(**dataclasses.asdict(passage)))
      count += 1
  os.replace(unfinished, path)
  return count


def _offsets(features, kind: str) -> tuple[tuple[int, int], ...]:
  starts, limits = (features[f"{kind}_byte_{end}"].int64_list.value for end in ("start", "limit"))
  return tuple(zip(starts, limits, strict=True))

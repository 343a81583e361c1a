"""Rows are read as written, in batches of any size, and mismatches are rejected."""

import numpy as np
import pytest

from realm_jax.data import prepared_examples
from realm_jax.data.batches import Shard
from realm_jax.foundations import array_folder

SETTINGS = {"task": "numbers", "query_length": 3}


def part(first, limit):
  numbers = np.arange(first, limit)
  return {
    "query": np.stack([numbers + 1, numbers, 0 * numbers], axis=1).astype(np.int32),
    "weights": np.repeat(numbers[:, None] / 2, 2, axis=1).astype(np.float32),
    "uid": (2**62 + numbers)[:, None],
  }


def write(directory, *, streams=((0, 10),), order="shuffled", vocab_size=100):
  directory.mkdir()
  writer = prepared_examples.Writer(str(directory), vocab_size=vocab_size)
  for first, limit in streams:
    assert writer.write_stream([part(first, first + 4), part(first + 4, limit)]) == limit - first
  return writer.finish(settings=SETTINGS, order=order, seed=3)


def open_batches(directory, **settings):
  given = {"settings": SETTINGS, "order": "shuffled", "batch_size": 4, **settings}
  return prepared_examples.open_batches(str(directory), **given)


def assert_equal_batches(found, expected):
  assert found.keys() == expected.keys()
  for name in expected:
    assert found[name].dtype == expected[name].dtype
    np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize(
  ("vocab_size", "stored"), [(2**16, np.dtype("uint16")), (2**16 + 1, np.dtype("int32"))]
)
def test_training_begins_anew_after_the_last_example(tmp_path, vocab_size, stored):
  manifest = write(tmp_path / "examples", vocab_size=vocab_size)
  assert manifest == prepared_examples.read_manifest(tmp_path / "examples")
  assert (tmp_path / "examples" / "stream_000.query.bin").stat().st_size == 30 * stored.itemsize
  batches = open_batches(tmp_path / "examples")
  assert_equal_batches(next(batches), part(0, 4))
  assert_equal_batches(next(batches), part(4, 8))
  third = next(batches)
  np.testing.assert_array_equal(third["query"][:, 1], [8, 9, 0, 1])
  position = batches.position()
  again = open_batches(tmp_path / "examples")
  again.restore(position)
  assert_equal_batches(next(again), part(2, 6))


def test_evaluation_is_one_pass_filled_up_with_zeros(tmp_path):
  write(tmp_path / "examples", order="corpus")
  first, second = open_batches(tmp_path / "examples", order="corpus", batch_size=8)
  assert_equal_batches(first, part(0, 8))
  assert_equal_batches({n: v[:2] for n, v in second.items()}, part(8, 10))
  assert not any(value[2:].any() for value in second.values())
  assert second["query"].shape == (8, 3)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    (
      {"settings": {**SETTINGS, "query_length": 4}},
      "prepared with query_length=3, here 4; prepare",
    ),
    ({"settings": {"task": "numbers"}}, "prepared with query_length=3, here None; prepare"),
    ({"order": "corpus"}, "prepared with order=shuffled, here corpus; prepare"),
    ({"shard": Shard(0, 2)}, "prepared with data_streams=1, here 2; prepare"),
    (
      {"batch_size": 11},
      "has 10 examples for stream 0 of 1, fewer than the 11 of its part of a batch",
    ),
  ],
)
def test_examples_for_something_else_are_refused(tmp_path, settings, message):
  write(tmp_path / "examples")
  with pytest.raises(ValueError, match=message):
    open_batches(tmp_path / "examples", **settings)


@pytest.mark.parametrize("stream", [0, 1])
def test_every_process_refuses_a_stream_smaller_than_its_part_of_a_batch(tmp_path, stream):
  write(tmp_path / "examples", streams=((0, 10), (10, 15)))
  with pytest.raises(ValueError, match="has 5 examples for stream 1 of 2.* at most 10"):
    open_batches(tmp_path / "examples", shard=Shard(stream, 2), batch_size=6)


def test_damaged_examples_are_refused(tmp_path):
  write(tmp_path / "examples")
  file = tmp_path / "examples" / "stream_000.query.bin"
  file.write_bytes(file.read_bytes()[:-1])
  with pytest.raises(ValueError, match=r"query.bin is damaged: .* 59 bytes instead of 60; write"):
    open_batches(tmp_path / "examples")
  folder = tmp_path / "examples" / array_folder.FOLDER_FILE
  folder.unlink()
  assert not prepared_examples.EXAMPLES.is_at(tmp_path / "examples")
  with pytest.raises(FileNotFoundError, match="write it with `realm prepare_examples`"):
    open_batches(tmp_path / "examples")


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"num_examples": "no"}, "folder.json is damaged: "),
    ({"num_examples": [9]}, "has 10 rows of stream_000.query; write it"),
    ({"dtypes": {"absent": "int32"}}, "folder.json is damaged: it has no stream_000.absent; write"),
  ],
)
def test_a_description_of_other_arrays_is_refused(tmp_path, change, message):
  directory, kind = tmp_path / "examples", prepared_examples.EXAMPLES
  write(directory)
  folder = array_folder.Folder(directory, kind=kind, of=dict)
  content = array_folder.encode(kind, {**folder.description, **change}, folder.records)
  (directory / array_folder.FOLDER_FILE).write_bytes(content)
  with pytest.raises(ValueError, match=message):
    open_batches(directory)

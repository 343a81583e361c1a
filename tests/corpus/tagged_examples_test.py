"""Tagged examples on disk."""

import os

import numpy as np
import pytest

from realm_jax.corpus import tagged_examples
from realm_jax.corpus.passage_store import Passage

NUM_PASSAGES = 600


def write(directory, numbers, **settings):
  directory.mkdir()
  writer = tagged_examples.TaggedExampleWriter(directory, num_shards=4, **settings)
  for i in numbers:
    passage = Passage(title=str(i), text="a", uid=i, sentences=[(0, 1)], spans=[])
    writer.write(tagged_examples.serialize(passage))
  writer.close()
  return directory


def contents(directory):
  return {name: (directory / name).read_bytes() for name in os.listdir(directory)}


@pytest.mark.parametrize("sort_bytes", [1, 5_000, 10**9])
def test_the_order_on_disk_is_random_and_the_same_whatever_is_sorted_at_once(tmp_path, sort_bytes):
  numbers = range(NUM_PASSAGES)
  sorted_here = write(tmp_path / "sorted", numbers, sort_bytes=sort_bytes)
  assert contents(sorted_here) == contents(write(tmp_path / "whole", numbers[::-1]))
  for path in tagged_examples.files(sorted_here):
    rows = np.array([passage.uid for passage in tagged_examples.read_shard(path)])
    assert len(rows) == NUM_PASSAGES / 4
    # A window of a random permutation is a sample: its mean is within four standard errors.
    for window in np.split(rows, 3):
      assert abs(window.mean() - NUM_PASSAGES / 2) < 4 * NUM_PASSAGES / np.sqrt(12 * len(window))

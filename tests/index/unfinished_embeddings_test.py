import itertools
import pathlib

import ml_dtypes
import numpy as np
import pytest

from realm_jax.index import publication
from realm_jax.index.publication import UnfinishedEmbeddings
from realm_jax.index.searcher import split_rows

ROWS = slice(3, 8)
KEPT_5xE = np.arange(20, dtype=ml_dtypes.bfloat16).reshape(5, 4)


@pytest.fixture
def index(tmp_path):
  index = str(tmp_path / "index")
  of_encoder(index, "a").save(ROWS, KEPT_5xE)
  return index


def of_encoder(index, digest, *, step=7):
  return UnfinishedEmbeddings(index=index, step=step, identity={"parameters_digest": digest})


def test_what_was_saved_comes_back_until_it_is_removed(index):
  found = np.zeros_like(KEPT_5xE)
  assert of_encoder(index, "a").load(ROWS, found)
  np.testing.assert_array_equal(found, KEPT_5xE)
  assert publication.unfinished_steps(index) == [7]
  publication.remove_unfinished(index)
  publication.remove_unfinished(index)
  assert not publication.unfinished_steps(index)
  assert not of_encoder(index, "a").load(ROWS, found)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_passages_are_divided_alike_whatever_the_number_of_processes(count):
  parts = split_rows(95, count)
  found = [publication.borders(part.start, part.stop, every=10) for part in parts]
  own_borders = {border for part in parts for border in (part.start, part.stop)}
  assert {border for borders in found for border in borders} == own_borders | set(range(0, 95, 10))
  for borders, part in zip(found, parts, strict=True):
    assert (borders[0], borders[-1]) == (part.start, part.stop)
    assert all(0 < stop - start <= 10 for start, stop in itertools.pairwise(borders))


@pytest.mark.parametrize(
  ("digest", "step", "rows"), [("b", 7, ROWS), ("a", 8, ROWS), ("a", 7, slice(3, 9))]
)
def test_embeddings_of_another_encoder_step_or_rows_are_not_used(index, digest, step, rows):
  found = np.zeros((rows.stop - rows.start, 4), KEPT_5xE.dtype)
  assert not of_encoder(index, digest, step=step).load(rows, found)
  assert not found.any()


@pytest.mark.parametrize("name", ["*.bin", "*.json"])
def test_damaged_embeddings_are_not_used(index, name):
  (file,) = pathlib.Path(f"{index}.unfinished", "7").glob(name)
  content = bytearray(file.read_bytes())
  content[-3] ^= 1
  file.write_bytes(content)
  found = np.zeros_like(KEPT_5xE)
  assert not of_encoder(index, "a").load(ROWS, found)
  assert not found.any()

"""What each step retrieved comes back as it was, or is refused."""

import time

import numpy as np
import pytest

from realm_jax.devices.datatypes import SearchResults
from realm_jax.index.exact_searcher import ExactSearcher
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.training.retrieval_trace import Trace, TraceWriter

SETTINGS = {"seed": 0, "batch_size": 4, "corpus_fingerprint": "c1", "num_passages": 3}
LOADED = LoadedGeneration(
  generation=7,
  searcher=ExactSearcher(np.ones((1, 1), np.float32)),
  training_step=5,
  created=time.time(),
)


def retrieved(step):
  random = np.random.default_rng(step)
  ids_BxK = random.integers(-2, 10, (4, 3)).astype(np.int32)
  return SearchResults(ids_BxK, random.normal(size=(4, 3)).astype(np.float32))


def write(directory, steps, *, at=0):
  writer = TraceWriter(str(directory), settings=SETTINGS, step=at)
  for step in steps:
    writer.add(step, retrieved(step), LOADED)
  writer.flush()


def test_every_step_comes_back_bit_for_bit(tmp_path):
  write(tmp_path, range(1, 6))
  write(tmp_path, range(6, 9), at=4)
  trace = Trace(str(tmp_path), settings=SETTINGS)
  for step in range(1, 9):
    found = trace[step]
    assert (found.generation, found.training_step) == (7, 5)
    for values, wanted in zip(found.passages, retrieved(step), strict=True):
      assert values.dtype == wanted.dtype
      np.testing.assert_array_equal(values, wanted)


def test_a_resumed_run_replaces_what_came_after_its_checkpoint(tmp_path):
  write(tmp_path, range(1, 6))
  write(tmp_path, range(6, 10), at=4)
  TraceWriter(str(tmp_path), settings=SETTINGS, step=4)  # killed before its next checkpoint
  with pytest.raises(ValueError, match="has steps 1 to 5, but not step 6; give the WORKDIR"):
    Trace(str(tmp_path), settings=SETTINGS)[6]


def test_the_rows_of_several_processes_are_joined(tmp_path, monkeypatch):
  monkeypatch.setattr("jax.process_count", lambda: 2)
  for process in (1, 0):
    monkeypatch.setattr("jax.process_index", lambda process=process: process)
    writer = TraceWriter(str(tmp_path), settings=SETTINGS, step=0)
    own = SearchResults(*(rows[2 * process :][:2] for rows in retrieved(1)))
    writer.add(1, own, LOADED)
    writer.flush()
    if process == 1:  # the other one was killed before it wrote
      with pytest.raises(ValueError, match="has no steps"):
        Trace(str(tmp_path), settings=SETTINGS)[1]
  np.testing.assert_array_equal(Trace(str(tmp_path), settings=SETTINGS)[1].passages, retrieved(1))

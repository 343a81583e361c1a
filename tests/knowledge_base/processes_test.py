"""Knowledge bases in programs with several threads and processes."""

import concurrent.futures
import copy
import gc
import multiprocessing
import os
import pickle
import threading

import jax
import pytest

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from tests.knowledge_base import tiny_models

PLANTS = [
  {"id": "moss", "title": "Mosses", "text": "Moss grows in the shade.", "year": 1958},
  {"id": "fern", "text": "A fern has leaves. It is green."},
]


class Subclass(KnowledgeBase):
  pass


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en")


def copied(value):
  return copy.deepcopy(value), copy.copy(value), pickle.loads(pickle.dumps(value))


def test_a_knowledge_base_is_pickled_and_copied_by_its_path(base, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for original in (base, KnowledgeBase("kb"), Subclass("kb")):
    for other in copied(original):
      assert type(other) is type(original) and other is not original
      assert other.search("moss") == base.search("moss")
  relative = pickle.dumps(KnowledgeBase("kb"))
  monkeypatch.chdir("/")
  assert len(pickle.loads(relative)) == 2


def test_hits_are_pickled_with_the_words_that_were_asked(base):
  for hits in (base.search("growing mosses in the shade"), base.search("zzz")):
    for other in copied(hits):
      assert other == hits and repr(other) == repr(hits)
      assert other._repr_html_() == hits._repr_html_()
  assert base.search("mosses")[0].fields == copied(base.search("moss"))[2][0].fields


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_other_processes_search_and_write(base, way):
  """Also those that are forked after JAX has run."""
  jax.numpy.zeros(1).block_until_ready()
  context = multiprocessing.get_context(way)
  with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
    assert pool.submit(base.search, "moss").result(60) == base.search("moss")
    added = pool.submit(base.add, [{"id": "oak", "text": "An oak."}]).result(60)
  assert added.added == 1 and "oak" in base


def tried(path, out):
  for act in (lambda base: base.search("moss"), lambda base: base.add(PLANTS)):
    try:
      out.put(act(KnowledgeBase(path)))
    except Exception as error:
      out.put(f"{type(error).__name__}: {error}")


def test_a_process_forked_after_the_encoder_ran_says_so(tmp_path):
  encoder = tiny_models.write(tmp_path / "encoder")
  base = KnowledgeBase.create(tmp_path / "kb", PLANTS[:1], language="en", encoder=encoder)
  context = multiprocessing.get_context("fork")
  out = context.Queue()
  process = context.Process(target=tried, args=(base.path, out))
  process.start()
  try:
    for _ in range(2):
      result = out.get(timeout=90)
      assert result.startswith("RuntimeError") and "spawn" in result
  finally:
    process.kill()
    process.join()
  assert len(base) == 1


def test_threads_write_with_an_object_each(base, tmp_path):
  (tmp_path / "link").symlink_to(base.path)
  paths, barrier = [base.path, str(tmp_path / "link")] * 3, threading.Barrier(6)

  def write(number):
    barrier.wait()
    texts = [{"id": f"{number}-{j}", "text": f"Moss of thread {number}."} for j in range(5)]
    other = KnowledgeBase(paths[number])
    return other.add(texts).added + other.delete(f"{number}-0").deleted

  with concurrent.futures.ThreadPoolExecutor(6) as pool:
    assert [*pool.map(write, range(6))] == [6] * 6
  assert len(base) == 2 + 6 * 4


def test_an_object_closes_the_files_of_segments_that_are_merged(base):
  gc.collect()
  gc.disable()
  try:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
      base.add([{"id": f"n{number}", "text": f"Moss {number}."}])
      base.search("moss")
    assert len(os.listdir("/proc/self/fd")) <= before + 10
  finally:
    gc.enable()

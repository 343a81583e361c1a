"""Eight CPU devices for every test, and the small batches that several rooms test with."""

import asyncio
import gc
import importlib.metadata
import os
import pathlib
import sys
import types

# Tests compile many small programs and run each a few times: compile them fast, not well.
os.environ["XLA_FLAGS"] = (
  "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
  # Of a program split for several threads more is compiled. Later jaxlibs may not know these flags.
  + "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false "
  * importlib.metadata.version("jaxlib").startswith("0.10")
  + os.environ.get("XLA_FLAGS", "")
)

# The lines of code that operations come from take time to find, and no test reads them.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

# With TensorFlow beside it, transformers asks for a Keras that nothing here needs.
os.environ.setdefault("USE_TF", "0")

import jax
import numpy as np
import pytest

from realm_jax.devices import backend, datatypes

# Tracing makes many small objects that live: looking for cycles among them took 6 % of the time.
gc.set_threshold(200_000, 20, 20)

# Where TensorFlow is loaded, importing what torch brings for GPUs ends the process.
sys.modules["triton"] = None

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_numpy_rank_promotion", "raise")


# Each has a test of more than a minute.
LONGEST = "several_processes_test.py", "killed_trainer_test.py"


def pytest_collection_modifyitems(items):
  """Begins with the long tests: one worker makes their world, and none ends with one alone."""
  items.sort(key=lambda item: ("e2e" not in item.path.parts, item.path.name not in LONGEST))


def pytest_sessionfinish(session):
  """Fails `make interop` if a test was skipped for anything but a browser."""
  reporter = session.config.pluginmanager.get_plugin("terminalreporter")
  if reporter and session.config.option.markexpr == "interop":
    skipped = [str(report.longrepr) for report in reporter.stats.get("skipped", ())]
    if not all("chromium" in reason for reason in skipped):
      reporter.write_line("\nskipped, although the environment has all extras")
      session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _tokens(random, *shape, vocab_size):
  """Random tokens: rows of random lengths with two segments."""
  lengths = random.integers(2, shape[-1] + 1, (*shape[:-1], 1))
  mask = np.arange(shape[-1]) < lengths
  return datatypes.Tokens(
    ids=np.where(mask, random.integers(1, vocab_size, shape), 0).astype(np.int32),
    mask=mask,
    segments=np.where(mask, np.arange(shape[-1]) > lengths // 2, 0).astype(np.int32),
  )


def _retrieved_batch(
  seed, *, queries, passages, masks, vocab_size, query_length=6, passage_length=7, joint_length=9
):
  random = np.random.default_rng(seed)
  weights_BxM = (np.arange(masks) < random.integers(1, masks + 1, (queries, 1))).astype(np.float32)
  passage_ids_BxK = random.integers(0, 100, (queries, passages)).astype(np.int32)
  passage_ids_BxK[:, 0] = datatypes.NULL_PASSAGE_ID
  stale_scores_BxK = random.normal(size=(queries, passages)).astype(np.float32)
  stale_scores_BxK[:, 0] = 0
  passage = _tokens(random, queries, passages, passage_length, vocab_size=vocab_size)
  null = datatypes.Tokens(ids=np.array([1, 2, 2]), mask=np.ones(3, bool), segments=np.arange(3) > 1)
  for leaf, values in zip(jax.tree.leaves(passage), jax.tree.leaves(null), strict=True):
    leaf[:, 0] = 0
    leaf[:, 0, : datatypes.NULL_PASSAGE_LENGTH] = values
  return datatypes.RetrievedBatch(
    queries=datatypes.MaskedQueries(
      query=_tokens(random, queries, query_length, vocab_size=vocab_size),
      mlm_positions_BxM=random.integers(0, query_length, (queries, masks)).astype(np.int32),
      mlm_targets_BxM=random.integers(1, vocab_size, (queries, masks)).astype(np.int32),
      mlm_weights_BxM=weights_BxM,
      source_uid_B=np.zeros(queries, np.int64),
    ),
    passage=passage,
    joint=_tokens(random, queries, passages, joint_length, vocab_size=vocab_size),
    valid_BxK=np.ones((queries, passages), bool),
    passage_ids_BxK=passage_ids_BxK,
    stale_scores_BxK=stale_scores_BxK,
  )


@pytest.fixture(scope="session", autouse=True)
def compiled_once(pytestconfig, tmp_path_factory):
  """Every program is compiled once, whichever test, process or run needs it first.

  `pytest --cache-clear` and `make clean` forget the programs of earlier runs.
  """
  cache = getattr(pytestconfig, "cache", None)  # none with `-p no:cacheprovider`
  directory = cache.mkdir("jax") if cache else tmp_path_factory.getbasetemp()
  settings = {
    "jax_compilation_cache_dir": os.environ.get("JAX_COMPILATION_CACHE_DIR")
    or backend.programs_directory(str(directory)),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
  }
  with pytest.MonkeyPatch.context() as patch:
    for name, value in settings.items():
      jax.config.update(name, value)
      patch.setenv(name.upper(), str(value))
    yield


# Linux allows a process 65,530 memory maps by default. A program of these tests takes ten.
MOST_MAPS = 40_000


@pytest.fixture(scope="module", autouse=True)
def room_for_programs():
  """Forgets compiled programs in time; without workers, one process would compile too many."""
  yield
  maps = pathlib.Path("/proc/self/maps")
  if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="session")
def float_tolerance():
  """`float_tolerance(depth=D, scale=S)` is how far two computations in float32 may differ.

  Each rounds `depth` times in a row (a sum of n terms counts n), each time by half an epsilon of
  values as large as `scale`; relative tolerances leave `scale` at one.
  """
  return lambda *, depth, scale=1.0: depth * scale * float(np.finfo(np.float32).eps)


@pytest.fixture(scope="session")
def encoder_depth():
  """`encoder_depth(config)` is the depth of `float_tolerance` of a BERT's hidden vectors."""

  def depth(config):
    # In a row: queries, logits, context, output and mlp_in sum over the width at most, each of two
    # norms twice; softmax and context sum over the length, mlp_out over the inner width.
    sums = 9 * config.hidden_size + 2 * config.max_length + config.mlp_size
    return 2 * config.hidden_size + config.num_layers * sums

  return depth


@pytest.fixture(scope="session")
def emulated_gcs(tmp_path_factory):
  """An object store on loopback, for this process and its children; see `EmulatedGcs`."""
  for name in ("gcsfs", "gcp_storage_emulator"):
    pytest.importorskip(name)
  from tests.emulated_gcs import EmulatedGcs

  with EmulatedGcs() as store, pytest.MonkeyPatch.context() as patch:
    for name, value in store.environment.items():
      patch.setenv(name, value)
    patch.setenv("REALM_CACHE", str(tmp_path_factory.mktemp("cache")))
    # Requests that are refused are repeated at once, not after half a minute in all.
    patch.setattr(
      "gcsfs.retry.asyncio", types.SimpleNamespace(sleep=lambda seconds: asyncio.sleep(0.001))
    )
    yield store


@pytest.fixture(scope="session")
def make_tokens():
  """`make_tokens(random, *shape, vocab_size)` returns `Tokens` of this shape."""
  return _tokens


@pytest.fixture(scope="session")
def make_retrieved_batch():
  """`make_retrieved_batch(seed, queries=B, passages=K, masks=M, vocab_size=V)` draws a batch."""
  return _retrieved_batch

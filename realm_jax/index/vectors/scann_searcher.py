"""Approximate search with ScaNN (Guo et al., 2020): tree, asymmetric hashing, exact reordering.

A shard can be converted to named arrays and back: the embeddings and the files that ScaNN
serialises, except its own copy of the embeddings, the list of files, and the pickle of ids, which
its loader would trust.

Candidates are rescored in the dtype of the embeddings, float32 or bfloat16. Loading holds the
interpreter lock for about 1 ms per 1,000 passages of 128 float32, a third of that for bfloat16.
"""

import ctypes
import os
import tempfile
from collections.abc import Mapping

import numpy as np
from scann.scann_ops.py import scann_builder, scann_ops_pybind

from realm_jax.devices import datatypes
from realm_jax.index.vectors import searcher
from realm_jax.index.vectors.searcher import Shard

_CONFIG = "scann_config.pb"
_ASSETS = "scann_assets.pbtxt"  # the list of files; written anew on loading, never taken from disk
_ASSET_TYPES = {
  "ah_codebook.pb": "AH_CENTERS",
  "serialized_partitioner.pb": "PARTITIONER",
  "datapoint_to_token.npy": "TOKENIZATION_NPY",
  "hashed_dataset.npy": "AH_DATASET_NPY",
}
_TOKENS, _HASHES = "datapoint_to_token.npy", "hashed_dataset.npy"
_CENTERS_OF_A_BLOCK = 16
# ScaNN's copy of the embeddings, which has the same bytes: file, asset type, dtype.
_DATASETS = {
  "float32": ("dataset.npy", "DATASET_NPY", np.float32),
  "bfloat16": ("bfloat16_dataset.npy", "BF16_DATASET_NPY", np.int16),
}
_REORDERING = {
  "float32": scann_builder.ReorderType.FLOAT32,
  "bfloat16": scann_builder.ReorderType.BFLOAT16,
}
_ANISOTROPIC_THRESHOLD = 0.2  # T of Guo et al. (2020), relative to the mean norm
_HASHING_SAMPLE = 16_384  # plenty for 16 centres a block, and hashing is slow to train
_MIN_QUERIES_PER_THREAD = 16  # with fewer, another thread costs more than it saves
_SET_MIN_LOG_LEVEL = "_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE"
_ERROR = 2


def _say_only_errors() -> None:
  """Silences the notices of ScaNN's own copy of Abseil."""
  scann = ctypes.CDLL(scann_ops_pybind.scann_pybind.__file__)
  if hasattr(scann, _SET_MIN_LOG_LEVEL):  # as ScaNN 1.4.2 calls it
    scann[_SET_MIN_LOG_LEVEL](_ERROR)


_say_only_errors()


class ScannShard(Shard):
  """One ScaNN searcher over consecutive rows of the corpus; ids count from its first row."""

  def __init__(
    self,
    scann_index: scann_ops_pybind.ScannSearcher,
    *,
    embeddings_NxE: np.ndarray,
    config: searcher.CorpusSearcherConfig,
  ):
    """Wraps the index of these embeddings, keeping only their shape."""
    super().__init__(embeddings_NxE, config)
    self._index = scann_index
    self._index.set_num_threads(self.threads)

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` rows of the shard, padded with -2 and -inf."""
    config = self.config
    candidates = leaves = None
    if self.num_passages >= config.min_passages_for_tree:
      candidates = searcher.candidates_to_rescore(config, k)
      leaves = searcher.leaves_to_search(config, k, num_passages=self.num_passages)
    num_parts = min(self.threads, len(queries_BxE) // _MIN_QUERIES_PER_THREAD)
    if num_parts > 1:
      size = -(-len(queries_BxE) // num_parts)
      found = self._index.search_batched_parallel(queries_BxE, k, candidates, leaves, size)
    else:
      found = self._index.search_batched(queries_BxE, k, candidates, leaves)
    ids_BxK, scores_BxK = found[0].view(np.int32), found[1]
    if np.isnan(scores_BxK[:, -1]).any():
      empty_BxK = np.isnan(scores_BxK)
      ids_BxK[empty_BxK] = datatypes.MISSING_PASSAGE_ID
      scores_BxK[empty_BxK] = -np.inf
    return datatypes.SearchResults(ids_BxK, scores_BxK)


def build_arrays(
  embeddings_NxE: np.ndarray, *, config: searcher.CorpusSearcherConfig
) -> dict[str, np.ndarray]:
  """Builds the index of one shard; returns it as named arrays, including the embeddings.

  Raises:
    ValueError: If the dtype is neither float32 nor bfloat16, or an embedding is NaN or infinite, at
      which ScaNN would abort the process.
  """
  reordering = _REORDERING[_check_dtype(embeddings_NxE)]
  rows_NxE = searcher.finite_rows(embeddings_NxE)
  num_rows = len(rows_NxE)
  builder = scann_ops_pybind.builder(rows_NxE, 10, "dot_product")
  if num_rows < config.min_passages_for_tree:
    builder = builder.score_brute_force(reordering)
  else:
    sample = min(num_rows, searcher.TRAINING_ROWS_PER_LEAF * config.num_leaves)
    leaves = min(config.num_leaves, num_rows)
    # Each search specifies its number of leaves.
    builder = builder.tree(leaves, leaves, training_sample_size=sample)
    # ScaNN's threshold is meant for unit vectors: its weights depend on T / |x|.
    threshold = _ANISOTROPIC_THRESHOLD * float(np.linalg.norm(rows_NxE, axis=1).mean())
    builder = builder.score_ah(
      searcher.DIMENSIONS_PER_CODE,
      anisotropic_quantization_threshold=threshold,
      training_sample_size=min(sample, _HASHING_SAMPLE),
    )
    builder = builder.reorder(config.reorder_candidates, reordering)
  index = builder.set_n_training_threads(config.threads_per_shard()).build()
  arrays = {"embeddings": embeddings_NxE}
  with tempfile.TemporaryDirectory(prefix="realm_scann_") as folder:
    index.serialize(folder, relative_path=True)
    left_out = {_ASSETS, _DATASETS[embeddings_NxE.dtype.name][0]}
    for name in sorted(set(os.listdir(folder)) - left_out):
      path = os.path.join(folder, name)
      if name != _CONFIG and name not in _ASSET_TYPES:
        raise ValueError(f"ScaNN wrote {name}, which cannot be stored; install scann 1.4")
      is_array = name.endswith(".npy")
      arrays[name] = np.load(path) if is_array else np.fromfile(path, np.uint8)
  return arrays


def load_shard(
  arrays: Mapping[str, np.ndarray], *, config: searcher.CorpusSearcherConfig
) -> ScannShard:
  """Restores a shard from the arrays of `build_arrays`.

  Raises:
    ValueError: If an array is missing or unknown, or if its shape, dtype or values would make
      ScaNN, which checks nothing, access memory out of bounds.
  """
  embeddings_NxE = arrays["embeddings"]
  num_rows = len(embeddings_NxE)
  required = {_CONFIG, *(_ASSET_TYPES if num_rows >= config.min_passages_for_tree else ())}
  unknown = sorted(set(arrays) - {_CONFIG, "embeddings", *_ASSET_TYPES})
  missing = sorted(required - set(arrays))
  if unknown or missing:
    raise ValueError(
      f"a ScaNN shard has unknown arrays {unknown} and lacks {missing}; build the index again"
    )
  _check_rows(arrays, config=config)
  dataset, dataset_type, stored_dtype = _DATASETS[_check_dtype(embeddings_NxE)]
  files = {name: array for name, array in arrays.items() if name != "embeddings"}
  files[dataset] = embeddings_NxE.view(stored_dtype)
  asset_types = {**_ASSET_TYPES, dataset: dataset_type}
  with tempfile.TemporaryDirectory(prefix="realm_scann_") as folder:
    for name, array in files.items():
      path = os.path.join(folder, name)
      if name.endswith(".npy"):
        np.save(path, array, allow_pickle=False)
      else:
        array.tofile(path)
    with open(os.path.join(folder, _ASSETS), "w") as assets:
      for name in files.keys() & asset_types.keys():
        assets.write(f'assets {{ asset_type: {asset_types[name]} asset_path: "{name}" }}\n')
    scann_index = scann_ops_pybind.load_searcher(folder)
  return ScannShard(scann_index, embeddings_NxE=embeddings_NxE, config=config)


def _check_rows(arrays: Mapping[str, np.ndarray], *, config: searcher.CorpusSearcherConfig) -> None:
  num_rows, size = arrays["embeddings"].shape
  blocks = -(-size // searcher.DIMENSIONS_PER_CODE)
  expected = {  # shape, dtype and limit of the values
    _TOKENS: ((num_rows,), np.int32, min(config.num_leaves, num_rows)),
    _HASHES: ((num_rows, blocks), np.uint8, _CENTERS_OF_A_BLOCK),
  }
  for name, (shape, dtype, limit) in expected.items():
    array = arrays.get(name)
    if array is None:
      continue
    if array.shape != shape or array.dtype != dtype:
      raise ValueError(
        f"array {name!r} of a ScaNN shard is {array.dtype} {array.shape} instead of"
        f" {np.dtype(dtype)} {shape}; build the index again"
      )
    if array.size and not 0 <= array.min() <= array.max() < limit:
      raise ValueError(
        f"array {name!r} of a ScaNN shard holds {array.min()} to {array.max()}; its values lie in"
        f" 0 to {limit - 1}; build the index again"
      )


def _check_dtype(embeddings_NxE: np.ndarray) -> str:
  dtype = embeddings_NxE.dtype.name
  if dtype not in _DATASETS:
    raise ValueError(f"passage embeddings are {dtype}; ScaNN takes float32 or bfloat16")
  return dtype

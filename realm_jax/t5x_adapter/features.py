"""Converts between t5x's batches (flat mappings of arrays) and those of realm_jax."""

import dataclasses
from collections.abc import Callable, Mapping

import flax.serialization
import flax.traverse_util
import numpy as np
import seqio
import tensorflow as tf

from realm_jax.data import batches
from realm_jax.devices import processes
from realm_jax.devices.datatypes import Array, MaskedQueries, Tokens

Features = Mapping[str, Array]
_PARTS = {"queries": MaskedQueries, "query": Tokens, "passage": Tokens, "joint": Tokens}


class MaskedQueryFeatures(seqio.PassThroughFeatureConverter):
  """Gives masked queries `source_uid` as two int32s, because t5x passes nothing wider."""

  def __call__(
    self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]
  ) -> tf.data.Dataset:
    del task_feature_lengths

    def convert(features):
      uid = tf.bitcast(features["source_uid"], tf.int32)[0]
      kept = {name: rows for name, rows in features.items() if name != "rejections"}
      return {**kept, "source_uid": uid}

    return ds.map(convert)


def make_converter(
  make: Callable[[], seqio.FeatureConverter],
  pack: bool = False,
  use_custom_packing_ops: bool = False,
) -> seqio.FeatureConverter:
  """Makes a feature converter with the signature that t5x expects."""
  if pack or use_custom_packing_ops:
    raise ValueError(
      f"pack={pack}, use_custom_packing_ops={use_custom_packing_ops}; queries are not packed: set "
      "utils.DatasetConfig.pack = False"
    )
  return make()


def features_of(batch) -> dict[str, Array]:
  """Returns the arrays of a batch by their paths, such as `queries/query/ids`."""
  nested = flax.serialization.to_state_dict(batch)
  flat = flax.traverse_util.flatten_dict(nested, sep="/")
  return {name: array for name, array in flat.items() if array is not None}


def batch_of(kind: type, features: Features, *, prefix: str = ""):
  """Makes a batch from its named arrays below a prefix; the inverse of `features_of`."""
  values = {}
  for field in dataclasses.fields(kind):
    path = f"{prefix}{field.name}"
    if field.name not in _PARTS:
      if path in features or field.default is dataclasses.MISSING:
        values[field.name] = features[path]
    elif any(name.startswith(f"{path}/") for name in features):
      values[field.name] = batch_of(_PARTS[field.name], features, prefix=f"{path}/")
  return kind(**values)


def masked_queries(features: Features) -> MaskedQueries:
  """Returns the queries of this process, made from `MaskedQueryFeatures`."""
  rows = {
    name: rows if isinstance(rows, np.ndarray) else processes.local_rows(rows)
    for name, rows in features.items()
  }
  uids_Bx1 = np.ascontiguousarray(rows["source_uid"], np.int32).view(np.int64)
  return batches.masked_queries({**rows, "source_uid": uids_Bx1})

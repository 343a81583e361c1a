"""Converts between t5x's batches (flat mappings of arrays) and those of realm_jax."""

from collections.abc import Callable, Mapping

import numpy as np
import seqio
import tensorflow as tf

from realm_jax.data import batches
from realm_jax.devices import processes
from realm_jax.devices.datatypes import Array, MaskedQueries

Features = Mapping[str, Array]


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


def masked_queries(features: Features) -> MaskedQueries:
  """Returns the queries of this process, made from `MaskedQueryFeatures`."""
  rows = {
    name: rows if isinstance(rows, np.ndarray) else processes.local_rows(rows)
    for name, rows in features.items()
  }
  uids_Bx1 = np.ascontiguousarray(rows["source_uid"], np.int32).view(np.int64)
  return batches.masked_queries({**rows, "source_uid": uids_Bx1})

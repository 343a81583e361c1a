"""Probes of retrieval within a batch: passages of other queries, and passages of most queries."""

import dataclasses

import jax
import jax.numpy as jnp

from realm_jax.datatypes import RetrievedBatch, Tokens


def of_other_queries(batch: RetrievedBatch) -> RetrievedBatch:
  """Gives every query the passages of the previous query in the batch, with unchanged scores.

  The joint inputs are composed on the device and truncated to the usual length.
  """
  joint = batch.joint
  lengths_Bx1x1 = batch.queries.query.mask.sum(axis=1)[:, None, None]
  columns_1x1xT = jnp.arange(joint.shape[-1])[None, None, :]
  # After the query, column t is taken from the passage part of the other query's input.
  from_Bx1xT = columns_1x1xT - lengths_Bx1x1 + jnp.roll(lengths_Bx1x1, 1, axis=0)
  own_BxKxT = jnp.broadcast_to(columns_1x1xT < lengths_Bx1x1, joint.shape)
  inside_BxKxT = jnp.broadcast_to(from_Bx1xT < joint.shape[-1], joint.shape)
  places_BxKxT = jnp.broadcast_to(jnp.clip(from_Bx1xT, 0, joint.shape[-1] - 1), joint.shape)

  def composed(values_BxKxT):
    theirs_BxKxT = jnp.take_along_axis(jnp.roll(values_BxKxT, 1, axis=0), places_BxKxT, axis=2)
    theirs_BxKxT = jnp.where(inside_BxKxT, theirs_BxKxT, jnp.zeros_like(theirs_BxKxT))
    return jnp.where(own_BxKxT, values_BxKxT, theirs_BxKxT)

  shuffled = Tokens(composed(joint.ids), composed(joint.mask), composed(joint.segments))
  return dataclasses.replace(batch, joint=shuffled, joint_buckets=())


def hub_share(passage_ids_BxK: jax.Array) -> jax.Array:
  """Returns the share of queries that get the most frequent passage other than the null passage."""
  ids_F = jnp.sort(passage_ids_BxK.reshape(-1))
  counts_F = jnp.searchsorted(ids_F, ids_F, side="right") - jnp.searchsorted(ids_F, ids_F)
  return jnp.max(jnp.where(ids_F >= 0, counts_F, 0)) / len(passage_ids_BxK)

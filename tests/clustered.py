"""Embeddings in clusters, which a tree can search."""

import numpy as np


def clustered(num_passages, size=32, num_queries=64, dtype=np.float32):
  rng = np.random.default_rng(num_passages)
  centers = 1.5 * rng.standard_normal((max(1, num_passages // 50), size))
  rows = centers[rng.integers(len(centers), size=num_passages)]
  rows = rows + rng.standard_normal(rows.shape)
  queries = rows[rng.integers(num_passages, size=num_queries)]
  queries = queries + 0.5 * rng.standard_normal(queries.shape)
  return rows.astype(dtype), queries.astype(np.float32)

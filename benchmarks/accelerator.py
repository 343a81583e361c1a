"""Train step, passage embedding and device search of one machine against its devices' roofline.

Needs jax, flax, optax, orbax and numpy alone. On a TPU or GPU machine:

  python benchmarks/accelerator.py --output=accelerator.json

and to see that it works, on any machine, in a minute:

  JAX_PLATFORMS=cpu python benchmarks/accelerator.py --tiny
"""

import argparse
import dataclasses
import json
import os
import statistics
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from realm_jax.devices import partitioning
from realm_jax.index import device_searcher, searcher
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder_programs import passage_encoder_program
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.examples import MaskedQueryData
from realm_jax.training.pretraining import ModelConfig, Pretraining, abstract_tokens

_K = 10
_RECALL_TARGET = 0.95

# FLOP/s in bfloat16 and bytes per second of a device, as published, by JAX's name for it.
_DEVICES = {  # the longer name first
  "TPU v2": (22.5e12, 350e9),
  "TPU v3": (61.5e12, 450e9),
  "TPU v4": (275e12, 1200e9),
  "TPU v5 lite": (197e12, 819e9),
  "TPU v5": (459e12, 2765e9),
  "TPU v6 lite": (918e12, 1640e9),
  "TPU7x": (1153.5e12, 3690e9),
  "H200": (989e12, 4800e9),
  "H100": (989e12, 3350e9),
  "A100-SXM4-80GB": (312e12, 2039e9),
  "A100": (312e12, 1555e9),
  "L4": (121e12, 300e9),
}


class Peak(NamedTuple):
  """The peak of one device."""

  flops: float
  memory_bandwidth: float


def peak_of(device_kind: str) -> Peak | None:
  """Returns the published figures of a device by JAX's name for it, or None."""
  return next((Peak(*figures) for name, figures in _DEVICES.items() if name in device_kind), None)


def this_peak() -> Peak:
  """Returns the figures of a device of this machine."""
  device = jax.local_devices()[0]
  if device.platform == "cpu":
    # Orders of magnitude: per core sixteen float32 multiply-adds a cycle at 2.5 GHz, and 20 GB/s.
    share = 1 / jax.local_device_count()
    return Peak(len(os.sched_getaffinity(0)) * 80e9 * share, 20e9 * share)
  peak = peak_of(device.device_kind)
  if peak is None:
    raise SystemExit(f"{device.device_kind} has no published figures here; add them to this file")
  return peak


def flops_per_device(program, *arguments, mesh) -> float:
  """Returns the operations of a program as it is written, before the compiler changes it."""
  return program.lower(*arguments).cost_analysis()["flops"] / mesh.size


def seconds_per_call(call, *, repetitions: int) -> float:
  """Returns the median time of a call that ends when its result is there; the first warms up."""
  jax.block_until_ready(call())
  seconds = []
  for _ in range(repetitions):
    start = time.perf_counter()
    jax.block_until_ready(call())
    seconds.append(time.perf_counter() - start)
  return statistics.median(seconds)


def random_like(abstract, *, below: int):
  """Returns arrays of these shapes: all positions filled, integers from 1 to `below`."""
  random = np.random.default_rng(0)

  def leaf(shape):
    if shape.dtype == jnp.int32:
      return random.integers(1, below, shape.shape).astype(np.int32)
    return np.ones(shape.shape, shape.dtype)

  return jax.tree.map(leaf, abstract)


def with_batch(pretraining: Pretraining, batch_size: int) -> Pretraining:
  """Returns the same training with another batch size."""
  data = dataclasses.replace(pretraining.data, batch_size=batch_size)
  return dataclasses.replace(pretraining, data=data)


def measure_train_step(pretraining: Pretraining, mesh, peak, *, repetitions: int) -> dict:
  """Measures the pre-training step with the largest batch, a power of two a device, that fits."""
  best = None
  per_device = 1
  while True:
    candidate = with_batch(pretraining, per_device * mesh.size)
    try:
      best = candidate, *_step_seconds(candidate, mesh, repetitions=repetitions)
    except jax.errors.JaxRuntimeError as error:
      if "RESOURCE_EXHAUSTED" not in str(error) or best is None:
        raise
      break
    if pretraining.data.batch_size <= candidate.data.batch_size:
      break
    per_device *= 2
  candidate, seconds, flops = best
  return {
    "what": f"train step, batch {candidate.data.batch_size}",
    "seconds": seconds,
    "rate": f"{candidate.data.batch_size / seconds:.1f} queries/s",
    "of_roofline": flops / peak.flops / seconds,
  }


def _step_seconds(pretraining: Pretraining, mesh, *, repetitions: int) -> tuple[float, float]:
  """Returns the seconds of a step and the operations of a device."""
  program = pretraining.program(mesh)
  # Small enough to be positions of masks as well.
  batch = random_like(pretraining.abstract_batch(), below=pretraining.data.query_length)
  batch = jax.device_put(batch, program.batch_sharding)
  state = program.new_state()

  def step():
    nonlocal state
    state, metrics = program.train_step(state, batch)
    return metrics

  flops = flops_per_device(program.jitted_step, state, batch, np.int32(0), mesh=mesh)
  return seconds_per_call(step, repetitions=repetitions), flops


def measure_embedding(
  pretraining: Pretraining, mesh, peak, *, tokens_per_device: int, repetitions: int
) -> dict:
  """Measures the passage encoder on passages of full length."""
  length = pretraining.retrieval.passage_length
  tower = pretraining.model.dual_encoder
  size = max(1, tokens_per_device // length) * mesh.size
  tokens = random_like(abstract_tokens(size, length), below=pretraining.data.query_length)
  tokens = jax.device_put(tokens, partitioning.batch_sharding(mesh))
  params = pretraining.program(mesh).new_state().params["dual_encoder"]
  encode = passage_encoder_program(tower, mesh)
  seconds = seconds_per_call(lambda: encode(params, tokens), repetitions=repetitions)
  flops = flops_per_device(encode, params, tokens, mesh=mesh)
  return {
    "what": f"embedding, {size} passages of {length}",
    "seconds": seconds,
    "rate": f"{size / seconds:.0f} passages/s",
    "of_roofline": flops / peak.flops / seconds,
  }


def measure_search(
  num_passages: int, mesh, peak, *, batch_size: int, repetitions: int
) -> list[dict]:
  """Measures exact and approximate search in both dtypes; exact float32 is what recall is against.

  A corpus beyond the devices' memory gives a row that says so.
  """
  random = np.random.default_rng(0)
  passages = random.standard_normal((num_passages, 128), np.float32)
  queries = random.standard_normal((batch_size, 128), np.float32)
  rows, truth = [], None
  for dtype in (np.float32, ml_dtypes.bfloat16):
    for recall_target in (None, _RECALL_TARGET):
      kind = "exact" if recall_target is None else f"approximate {recall_target}"
      name = f"search, {num_passages:,} x 128 {np.dtype(dtype).name}, {kind}, {batch_size} queries"
      try:
        index = device_searcher.DeviceSearcher(
          passages.astype(dtype), mesh=mesh, recall_target=recall_target
        )
      except ValueError as error:
        rows.append({"what": name, "refused": str(error)})
        continue
      ids = index.search(queries, _K).ids_BxK
      truth = ids if truth is None else truth
      seconds = seconds_per_call(
        lambda index=index: index.search(queries, _K).ids_BxK, repetitions=repetitions
      )
      part = num_passages / mesh.size
      least = max(
        2 * batch_size * part * 128 / peak.flops,
        part * 128 * np.dtype(dtype).itemsize / peak.memory_bandwidth,
      )
      rows.append(
        {
          "what": name,
          "seconds": seconds,
          "rate": f"{batch_size / seconds:.0f} queries/s",
          "of_roofline": least / seconds,
          "recall": searcher.recall_at_k(ids, truth),
        }
      )
      del index
  return rows


def numpy_agrees(mesh) -> bool:
  """Returns whether exact search over 100,000 passages gives numpy's answer."""
  random = np.random.default_rng(1)
  passages = random.standard_normal((100_000, 128), np.float32)
  queries = random.standard_normal((32, 128), np.float32)
  found = device_searcher.DeviceSearcher(passages, mesh=mesh).search(queries, _K).ids_BxK
  scores = queries @ passages.T
  return np.array_equal(found, np.argsort(-scores, axis=1, kind="stable")[:, :_K])


def pretraining_to_measure(*, tiny: bool, largest_batch: int) -> Pretraining:
  """Returns the paper's pre-training, or a tiny one of the same kind."""
  bert = BertConfig(dtype="bfloat16")
  retrieval = RetrievalConfig()
  if tiny:
    bert = BertConfig(
      vocab_size=1000, hidden_size=64, num_layers=2, num_heads=2, mlp_size=128, dtype="float32"
    )
    retrieval = RetrievalConfig(num_passages=3, passage_length=32, joint_length=48)
  return Pretraining(
    data=MaskedQueryData(batch_size=largest_batch, query_length=16 if tiny else 96),
    model=ModelConfig(dual_encoder=DualEncoderConfig(bert=bert), knowledge_augmented_encoder=bert),
    retrieval=retrieval,
  )


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--tiny", action="store_true", help="a small model and corpus")
  parser.add_argument("--largest_batch", type=int, help="stop growing there (4096; tiny: 16)")
  parser.add_argument("--num_passages", type=int, nargs="*", help="(1 and 10 million; tiny: 20000)")
  parser.add_argument("--batch_size", type=int, default=512, help="queries of a search")
  parser.add_argument("--tokens_per_device", type=int, default=65_536, help="of an embedding batch")
  parser.add_argument("--repetitions", type=int, default=10)
  parser.add_argument("--profile", help="directory for a profile of the train step")
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()

  peak = this_peak()
  mesh = partitioning.make_mesh()
  largest = args.largest_batch or (16 if args.tiny else 4096)
  pretraining = pretraining_to_measure(tiny=args.tiny, largest_batch=largest)
  device = jax.local_devices()[0]
  print(
    f"{mesh.size} x {device.device_kind}, {peak.flops / 1e12:.1f} TFLOP/s,"
    f" {peak.memory_bandwidth / 1e9:.0f} GB/s each; exact search equals numpy: {numpy_agrees(mesh)}"
  )
  rows = [measure_train_step(pretraining, mesh, peak, repetitions=args.repetitions)]
  if args.profile:
    fitting = with_batch(pretraining, int(rows[0]["what"].split()[-1]))
    with jax.profiler.trace(args.profile):
      _step_seconds(fitting, mesh, repetitions=3)
  rows.append(
    measure_embedding(
      pretraining,
      mesh,
      peak,
      tokens_per_device=args.tokens_per_device if not args.tiny else 2048,
      repetitions=args.repetitions,
    )
  )
  sizes = args.num_passages
  if sizes is None:
    sizes = [20_000] if args.tiny else [1_000_000, 10_000_000]
  for num_passages in sizes:
    rows += measure_search(
      num_passages, mesh, peak, batch_size=args.batch_size, repetitions=args.repetitions
    )

  print("| | seconds | rate | of the roofline | recall |\n|---|---|---|---|---|")
  for row in rows:
    if "refused" in row:
      print(f"| {row['what']} | refused: {row['refused']} | | | |")
      continue
    recall = f"{row['recall']:.3f}" if "recall" in row else ""
    print(
      f"| {row['what']} | {row['seconds']:.4f} | {row['rate']} | {row['of_roofline']:.0%} |"
      f" {recall} |"
    )
  if args.output:
    with open(args.output, "w") as file:
      json.dump(
        {"device": device.device_kind, "settings": vars(args), "rows": rows}, file, indent=2
      )


if __name__ == "__main__":
  main()

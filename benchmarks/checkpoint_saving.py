"""Times the saving of a small train state on eight devices, as Orbax slices it and as we do.

Orbax divides the writing of an array among its replicas. This prints the seconds of the first
checkpoint and the median of the next, with slices of any size and with ours, and the ratio; then
the share of saving large arrays that their digests take.
"""

import argparse
import os
import pathlib
import statistics
import tempfile
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import orbax.checkpoint as ocp

from realm_jax.checkpoints import orbax_files
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.training.pretraining import ModelConfig, Pretraining


def seconds_of_saves(state, directory: pathlib.Path, *, count: int) -> list[float]:
  """Returns the wall seconds of each checkpoint, until it is on disk."""
  seconds = []
  with orbax_files.Checkpointer(directory) as checkpointer:
    for step in range(count):
      started = time.perf_counter()
      checkpointer.save(step, state, input={}, metadata={})
      checkpointer.wait()
      seconds.append(time.perf_counter() - started)
  return seconds


def share_of_digests(directory: pathlib.Path, *, mib: int, count: int) -> float:
  """Returns the share of the wall time of saving in which digests are computed."""
  handler, seconds = orbax_files._MetadataHandler, []
  finalize = handler.finalize

  def timed(self, path):
    started = time.perf_counter()
    finalize(self, path)
    seconds.append(time.perf_counter() - started)

  handler.finalize = timed
  random = np.random.default_rng(0)
  state = {str(i): jax.numpy.asarray(random.random(1 << 18, np.float32)) for i in range(mib)}
  saves = seconds_of_saves(state, directory, count=count)
  handler.finalize = finalize
  return statistics.median(a / b for a, b in zip(seconds, saves, strict=True))


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--checkpoints", type=int, default=9)
  parser.add_argument("--mib", type=int, default=512, help="of the large arrays")
  args = parser.parse_args()
  count = args.checkpoints
  bert = BertConfig(vocab_size=1024, hidden_size=16, num_layers=1, num_heads=2, mlp_size=32)
  encoders = ModelConfig(
    dual_encoder=DualEncoderConfig(bert=bert), knowledge_augmented_encoder=bert
  )
  state = Pretraining(model=encoders).program().new_state()
  ours = ocp.type_handlers.get_type_handler(jax.Array)
  found = {}
  with tempfile.TemporaryDirectory() as root:
    for name, handler in (("ours", ours), ("any size", ocp.type_handlers.ArrayHandler())):
      ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
      first, *others = seconds_of_saves(state, pathlib.Path(root, name), count=count)
      found[name] = first, statistics.median(others)
      print(f"slices of {name}: first {first:.2f} s, then {found[name][1]:.2f} s", flush=True)
    ocp.type_handlers.register_type_handler(jax.Array, ours, override=True)
    share = share_of_digests(pathlib.Path(root, "large"), mib=args.mib, count=count)
  ratios = [b / a for a, b in zip(found["ours"], found["any size"], strict=True)]
  print(f"ours is {ratios[0]:.1f} times as fast at first, then {ratios[1]:.1f} times")
  print(f"digests take {share:.1%} of saving {args.mib} MiB")


if __name__ == "__main__":
  main()

"""Times the saving of a small train state on eight devices, as Orbax slices it and as we do.

Orbax divides the writing of an array among its replicas. This prints the seconds of the first
checkpoint and the median of the next, with slices of any size and with ours, and the ratio.
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
import orbax.checkpoint as ocp

from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.runs.pretraining import ModelConfig, Pretraining
from realm_jax.training import checkpoints


def seconds_of_saves(state, directory: pathlib.Path, *, count: int) -> list[float]:
  """Returns the wall seconds of each checkpoint, until it is on disk."""
  seconds = []
  with checkpoints.Checkpointer(directory) as checkpointer:
    for step in range(count):
      started = time.perf_counter()
      checkpointer.save(step, state, input={}, metadata={})
      checkpointer.wait()
      seconds.append(time.perf_counter() - started)
  return seconds


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--checkpoints", type=int, default=9)
  count = parser.parse_args().checkpoints
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
  ratios = [b / a for a, b in zip(found["ours"], found["any size"], strict=True)]
  print(f"ours is {ratios[0]:.1f} times as fast at first, then {ratios[1]:.1f} times")


if __name__ == "__main__":
  main()

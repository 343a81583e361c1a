"""The log of which generation each training step searched."""

import json
import os
import time

from realm_jax.devices import processes
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.training import metric_writers

SWAPS_FILE = "swaps.jsonl"


class SwapLog:
  """Appends each generation swapped in, with its step, to `swaps.jsonl`; drops later rows."""

  def __init__(self, directory: str, *, step: int):
    self._path = os.path.join(directory, SWAPS_FILE)
    if processes.is_first():
      os.makedirs(directory, exist_ok=True)
      metric_writers.drop_rows_after(self._path, step)

  def write(self, step: int, loaded: LoadedGeneration) -> None:
    """Records that batches from `step` on use a generation; the first process writes for all."""
    if not processes.is_first():
      return
    record = {
      "step": step,
      "seconds": time.time(),
      "generation": loaded.generation,
      "training_step": loaded.training_step,
      "created": loaded.created,
    }
    with open(self._path, "a", encoding="utf-8") as file:
      file.write(json.dumps(record) + "\n")

"""Compiles pre-training for absent devices, and tells whether it fits and how long it takes."""

from typing import Annotated

from realm_jax.foundations import choices
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.training.machines.ahead_of_time import open_topology
from realm_jax.training.machines.pretraining_plan import PretrainingPlan
from realm_jax.training.recipes.pretraining import Pretraining


def plan(
  *,
  topology: str,
  pretraining: Pretraining = Pretraining(),
  builder: BuilderConfig = BuilderConfig(),
  num_passages: choices.Count | None = None,
  retriever_batch_size: choices.Count | None = None,
  share_of_peak: Annotated[float, choices.Bounds(above=0, most=1)] = 0.5,
) -> int:
  """Prints the memory of every program of a pre-training, whether it fits, and its times.

  Nothing runs on an accelerator: the programs of `realm pretrain`, `realm train_retriever` and
  `realm build_index` are compiled for the named devices, on any machine with libtpu (the extra
  `tpu`) or, for GPUs, with the extra `cuda12`. A training that does not fit is compiled with more
  accumulation steps, which do not change what it learns, until it fits. Times are estimates: the
  program's operations or bytes, whichever take longer at a share of the devices' published peak.

  Args:
    topology: The devices: v3:8x8, v4:4x4x4, v5e:8x8, v6e:8x8, h100:1 and other GPUs, cpu:8, or
      local for this machine's.
    pretraining: The configuration of the training.
    builder: The index builder.
    num_passages: Number of passages in the knowledge corpus, for the time of a generation, and for
      a search on the devices.
    retriever_batch_size: Pairs per step of `realm train_retriever`; None leaves its step out.
    share_of_peak: Share of the peak that the devices are expected to reach.

  Returns:
    0 if it fits, 2 if it does not.

  Raises:
    ValueError: If a topology is unknown or does not divide a batch, or the number of passages is
      needed and not given.
  """
  if builder.searcher.kind == "device" and num_passages is None:
    raise ValueError("a search on the devices needs the number of passages; give --num_passages")
  planned = PretrainingPlan(
    pretraining=pretraining,
    builder=builder,
    topology=open_topology(topology),
    num_passages=num_passages,
    retriever_batch_size=retriever_batch_size,
  )
  for line in planned.lines(share_of_peak=share_of_peak):
    print(line, flush=True)
  return 2 if planned.refused else 0

"""The text of a plan."""

from collections.abc import Sequence

from realm_jax.planning.ahead_of_time import CompiledProgram
from realm_jax.planning.chips import GIB, Chip
from realm_jax.planning.collectives import Collective
from realm_jax.planning.generation_costs import Index, Staleness, Times
from realm_jax.planning.model_costs import MemoryEstimate
from realm_jax.planning.roofline import Roofline


def memory_lines(estimate: MemoryEstimate, *, compiled_step: int | None, chip: Chip) -> list[str]:
  """Returns the table of a device's memory.

  Args:
    compiled_step: Bytes of the compiled step; None if it could not be compiled.
  """
  rows = [
    ("parameters", estimate.parameters),
    ("optimizer", estimate.optimizer),
    ("activations and gradients", estimate.activations),
    ("batch", estimate.batch),
    ("search shard", estimate.search_shard),
  ]
  lines = ["memory of a device          GiB"]
  lines += [f"  {name:26}{size / GIB:7.2f}" for name, size in rows]
  lines.append(f"  {'together':26}{estimate.total / GIB:7.2f}")
  if compiled_step is not None:
    lines.append(
      f"  compiled: {compiled_step / GIB:.2f} for the step, {estimate.state / GIB:.2f} of it state;"
      f" the estimate of {estimate.step / GIB:.2f} is off by"
      f" {100 * (estimate.step / compiled_step - 1):+.0f} %"
    )
  lines.append(
    f"  capacity: {chip.memory_bytes / GIB:.2f}, of which the compiler leaves"
    f" {chip.usable_bytes / GIB:.2f}"
  )
  return lines


def over_capacity(what: str, needed: float, chip: Chip) -> str:
  """Returns why something does not fit into a device's memory."""
  return (
    f"{what} needs {needed / GIB:.2f} GiB of a {chip.name} device's {chip.usable_bytes / GIB:.2f}"
    " GiB; lower batch_size, use more chips, accumulate_steps, remat or layout=fully_sharded"
  )


def program_lines(programs: Sequence[tuple[CompiledProgram, float | None]]) -> list[str]:
  """Returns a table of programs: compiled work per device, analytic operations if known."""
  lines = ["program                  TFLOP analytic   compiled   GiB moved  GiB sent   memory"]
  for program, analytic in programs:
    known = f"{analytic / 1e12:.3f}" if analytic else ""
    work = program.work
    lines.append(
      f"  {program.name:28}{known:>9}{work.flops / 1e12:11.3f}{work.memory_bytes / GIB:12.2f}"
      f"{work.link_bytes / GIB:10.3f}{program.memory_bytes / GIB:9.2f}"
      if program.refusal is None
      else f"  {program.name:28}does not compile"
    )
  return lines


def collective_lines(collectives: Sequence[Collective]) -> list[str]:
  """Returns a line for each kind of collective in a program."""
  if not collectives:
    return ["collectives of the step: none"]
  return ["collectives of the step"] + [
    f"  {c.count:4} {c.kind:20} {c.result_bytes / GIB:8.3f} GiB of results" for c in collectives
  ]


def step_lines(step: Roofline, *, efficiency: float, useful_flops: float, chip: Chip) -> list[str]:
  """Returns the roofline of a step and its expected time."""
  expected = step.seconds / efficiency
  return [
    f"step: compute {step.compute:.3f} s, memory {step.memory:.3f} s, links {step.links:.3f} s;"
    f" bound by {step.bound}",
    f"  at {efficiency:.0%} of the roofline {expected:.3f} s, model-FLOPs utilisation"
    f" {useful_flops / expected / chip.flops:.0%}",
  ]


def refresh_lines(times: Times, stale: Staleness) -> list[str]:
  """Describes the time per generation and the staleness of the index."""
  return [
    f"generation: checkpoint saved {_duration(times.save)}, polls {_duration(times.polls)},"
    f" encoders read {_duration(times.read)}, embedding {_duration(times.embed)},",
    f"  index {_duration(times.build)}, recall {_duration(times.measure)}, written"
    f" {_duration(times.write)}, loaded {_duration(times.load)};",
    f"  from step to swap {_duration(times.all)}, one every {_duration(stale.generation_seconds)}",
    f"  staleness {stale.at_swap:,} steps when swapped in, at most {stale.at_most:,}",
  ]


def builder_lines(
  rows: Sequence[tuple[str, Times, Staleness]], *, target: int, least_seconds: float
) -> list[str]:
  """Returns the table of index builders, which ends with the smallest that reaches the target.

  Args:
    rows: Name, times and staleness of builders, each larger than the one before.
    target: Steps that the index may lag behind when it is swapped in.
    least_seconds: Staleness that remains with a builder of any size.
  """
  lines = [f"{'index builder':24}{'embedding':>12}{'index':>10}{'steps stale':>13}"]
  lines += [
    f"  {name:22}{_duration(times.embed):>12}{_duration(times.index):>10}{stale.at_swap:13,}"
    for name, times, stale in rows
  ]
  name, _, stale = rows[-1]
  if stale.at_swap <= target:
    return [*lines, f"  {name} is the smallest that stays within --target_staleness={target}"]
  return [
    *lines,
    f"  none of them stays within --target_staleness={target}; loading alone takes"
    f" {_duration(least_seconds)}",
  ]


def storage_lines(
  index: Index,
  *,
  host_bytes: int,
  chip: Chip,
  checkpoint_bytes: int,
  keep_generations: int,
  keep_checkpoints: int,
) -> list[str]:
  """Describes the usage of host memory and storage."""
  return [
    f"host memory: {host_bytes / GIB:.1f} of {chip.host_memory_bytes / GIB:.0f} GiB while a"
    " generation is swapped, passages (memory-mapped) aside",
    f"storage: {index.bytes / GIB:.2f} GiB a generation, {checkpoint_bytes / GIB:.2f} GiB a"
    f" checkpoint; {keep_generations} and {keep_checkpoints} kept:"
    f" {(keep_generations * index.bytes + keep_checkpoints * checkpoint_bytes) / GIB:.1f} GiB",
  ]


def verdict(reasons: Sequence[str]) -> str:
  """Returns the last line: whether the plan fits."""
  return "does not fit, because " + "; ".join(reasons) if reasons else "fits"


def _duration(seconds: float) -> str:
  if seconds < 120:
    return f"{seconds:.1f} s"
  return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

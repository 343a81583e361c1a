"""The cost of a step on every host, and which of several hosts slows down the others."""

from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from realm_jax.devices import processes

# Where a step's time is a host's own; the rest is waiting for devices, and so for other hosts.
_OWN = ("data", "swap", "search", "gather", "transfer")
_SLOW_SHARE = 0.1  # of a step


def compare(step: int, means: Mapping[str, float]) -> dict[str, float]:
  """Returns figures of the slowest of several hosts and names it in the log if it matters.

  All processes must call it together. With one process there is nothing to compare.

  Args:
    means: Metrics of this host, with `throughput/PART_seconds` of a step.
  """
  own = {part: means.get(f"throughput/{part}_seconds", 0.0) for part in _OWN}
  hosts = processes.share(own)
  if len(hosts) == 1:
    return {}
  figures, line = slowest(hosts, step_seconds=means["throughput/step_seconds"])
  if line and processes.is_first():
    logging.warning("step %d: %s", step, line)
  return figures


def slowest(
  hosts: Sequence[Mapping[str, float]], *, step_seconds: float
) -> tuple[dict[str, float], str | None]:
  """Returns figures of the slowest host, and a line about it if it costs a tenth of a step.

  Each host has the seconds per step that its parts take.
  """
  totals = np.array([sum(parts.values()) for parts in hosts])
  worst, median = int(totals.argmax()), float(np.median(totals))
  figures = {
    "hosts/slowest": worst,
    "hosts/slowest_seconds": float(totals[worst]),
    "hosts/median_seconds": median,
  }
  if totals[worst] - median < _SLOW_SHARE * step_seconds:
    return figures, None
  typical = {part: float(np.median([parts[part] for parts in hosts])) for part in hosts[worst]}
  part = max(typical, key=lambda name: hosts[worst][name] - typical[name])
  return figures, (
    f"host {worst} is slow, {totals[worst]:.3f} s a step where the median host takes "
    f"{median:.3f} s; most of it is {part}, {hosts[worst][part]:.3f} s instead of "
    f"{typical[part]:.3f} s"
  )

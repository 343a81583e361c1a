"""The least time that work can take on a device: the slowest of arithmetic, memory and links."""

import dataclasses

from realm_jax.planning.chips import Chip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
  """What one device does.

  Attributes:
    flops: multiplications and additions.
    memory_bytes: read from and written to the device's memory.
    link_bytes: sent to other devices.
  """

  flops: float
  memory_bytes: float
  link_bytes: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roofline:
  """Seconds that each part of the work takes alone at the device's peak."""

  compute: float
  memory: float
  links: float

  @property
  def seconds(self) -> float:
    """The least time, if all three run side by side."""
    return max(self.compute, self.memory, self.links)

  @property
  def bound(self) -> str:
    """Which of the three it is: "compute", "memory" or "links"."""
    return max(("compute", "memory", "links"), key=lambda name: getattr(self, name))


def roofline(work: Work, chip: Chip) -> Roofline:
  """Returns the roofline of a device's work."""
  return Roofline(
    compute=work.flops / chip.flops,
    memory=work.memory_bytes / chip.memory_bandwidth,
    links=work.link_bytes / chip.link_bandwidth,
  )

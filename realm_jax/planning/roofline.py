"""A lower bound on the time of work on a device: the slowest of compute, memory and links."""

import dataclasses

from realm_jax.planning.chips import Chip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
  """The work of one device.

  Attributes:
    flops: Multiplications and additions.
    memory_bytes: Bytes read from and written to the device's memory.
    link_bytes: Bytes sent to other devices.
  """

  flops: float
  memory_bytes: float
  link_bytes: float = 0.0

  def repeated(self, times: int, *, once_bytes: float) -> "Work":
    """Returns the work of several rounds; `once_bytes` are moved in only one of them."""
    once_bytes = min(once_bytes, self.memory_bytes)
    return Work(
      flops=times * self.flops,
      memory_bytes=times * (self.memory_bytes - once_bytes) + once_bytes,
      link_bytes=times * self.link_bytes,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roofline:
  """Seconds that each part of the work takes by itself at the device's peak."""

  compute: float
  memory: float
  links: float

  @property
  def seconds(self) -> float:
    """The time if all three overlap perfectly."""
    return max(self.compute, self.memory, self.links)

  @property
  def bound(self) -> str:
    """The slowest part: "compute", "memory" or "links"."""
    return max(("compute", "memory", "links"), key=lambda name: getattr(self, name))


def roofline(work: Work, chip: Chip) -> Roofline:
  """Returns the roofline of a device's work."""
  return Roofline(
    compute=work.flops / chip.flops,
    memory=work.memory_bytes / chip.memory_bandwidth,
    links=work.link_bytes / chip.link_bandwidth,
  )

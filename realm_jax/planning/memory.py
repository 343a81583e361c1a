"""What lies in a device's memory during a training step, before anything is compiled."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
  """Bytes of one device.

  Attributes:
    parameters: as they are kept between steps.
    optimizer: likewise.
    activations: kept for the backward pass, with gradients and gathered parameters.
    batch: the examples of this step.
    search_shard: passage embeddings of a search on the devices.
  """

  parameters: int
  optimizer: int
  activations: int
  batch: int
  search_shard: int

  @property
  def step(self) -> int:
    """Bytes that the training step takes."""
    return self.parameters + self.optimizer + self.activations + self.batch

  @property
  def total(self) -> int:
    return self.step + self.search_shard

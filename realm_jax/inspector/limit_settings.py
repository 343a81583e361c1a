"""What requests the inspector's server lets in."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitSettings:
  """What requests are let in.

  Attributes:
    body_bytes: Size of the largest body.
    requests_per_minute: Average rate of one client address.
    burst: Requests that one address may send at once.
    hosts: Names of this server, without port; empty allows any. Without this check, another site
      could point its own name here and have the browser share its session.
  """

  body_bytes: int = 65_536
  requests_per_minute: int = 1200
  burst: int = 60
  hosts: Sequence[str] = ()

  def __post_init__(self):
    for name in ("body_bytes", "requests_per_minute", "burst"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")

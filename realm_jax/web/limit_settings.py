"""Limits on the requests that the inspector's server accepts."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitSettings:
  """Limits on the requests that are accepted.

  Attributes:
    body_bytes: Maximum size of a body.
    requests_per_minute: Average rate allowed per client address, which may send those of three
      seconds, but at least 60, at once.
    hosts: Names of this server, without port; empty allows any. Otherwise another site could point
      its own name here, and the browser would share its session (DNS rebinding).
  """

  body_bytes: int = 65_536
  requests_per_minute: int = 1200
  hosts: Sequence[str] = ()

  def __post_init__(self):
    for name in ("body_bytes", "requests_per_minute"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")

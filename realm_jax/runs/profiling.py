"""A profile of some steps: JAX's trace of host and devices, and what is in device memory."""

import contextlib
import os

import jax
from absl import logging

from realm_jax.foundations import atomic_files
from realm_jax.foundations.output_kinds import DirectoryKind

PROFILE = "profile"
_MEMORY = "memory.prof"
_KIND = DirectoryKind(name="a profile", files=(_MEMORY, "plugins/"))


class Profiler:
  """Writes `WORKDIR/profile`; a hook of the train loop that also sees the state before it."""

  def __init__(self, workdir: str, steps: tuple[int, int] | None):
    self._directory = os.path.join(workdir, PROFILE)
    self._steps = steps
    self._tracing = contextlib.ExitStack()

  def __call__(self, taken: int, state) -> None:
    """Begins or ends the profile if this many steps have been taken."""
    if self._steps is None:
      return
    first, end = self._steps
    if taken == first:
      self._begin()
    elif taken == end:
      jax.block_until_ready(state)
      self.close()
      logging.info("step %d: wrote %s", taken, self._directory)

  def close(self) -> None:
    """Ends the profile if it has begun."""
    self._tracing.close()

  def _begin(self) -> None:
    directory = self._tracing.enter_context(atomic_files.new_directory(self._directory, kind=_KIND))
    self._tracing.callback(jax.profiler.save_device_memory_profile, f"{directory}/{_MEMORY}")
    self._tracing.enter_context(jax.profiler.trace(directory))


def parse(text: str | None, *, num_steps: int) -> tuple[int, int] | None:
  """Returns the steps taken at the beginning and at the end of "FIRST:END"; None for None.

  Raises:
    ValueError: If these are no steps of the run.
  """
  if text is None:
    return None
  first, _, end = text.partition(":")
  if first.isdecimal() and end.isdecimal() and int(first) < int(end) <= num_steps:
    return int(first), int(end)
  raise ValueError(
    f"profile_steps={text!r}; give FIRST:END with FIRST < END <= num_steps={num_steps}, such as "
    f"{min(100, max(num_steps - 10, 0))}:{min(110, num_steps)}"
  )

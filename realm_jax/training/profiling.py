"""Traces of `jax.profiler` for TensorBoard and XProf."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Sequence

import jax

from realm_jax.devices import processes
from realm_jax.foundations import object_store


class StepTrace(contextlib.AbstractContextManager["StepTrace"]):
  """Traces some steps of a training on the first process; use as a context manager.

  Args:
    directory: The trace goes to `plugins/profile` in it, where TensorBoard finds it.
    steps: The first step and the one after the last; empty for none.
  """

  def __init__(self, directory: str, steps: Sequence[int]):
    self._directory = directory
    self._first, self._stop = steps if steps and processes.is_first() else (-1, -1)
    self._local: str | None = None  # while tracing

  def __exit__(self, *_):
    self._finish()

  def after_step(self, taken: int, state) -> None:
    """Starts or ends the trace when as many steps are taken; a hook of the training loop."""
    if taken == self._stop:
      jax.block_until_ready(state)  # the last step belongs to the trace
      self._finish()
    elif self._first <= taken < self._stop and self._local is None:
      remote = object_store.is_remote(self._directory)
      self._local = tempfile.mkdtemp(prefix="realm_trace_") if remote else self._directory
      jax.profiler.start_trace(self._local)

  def _finish(self) -> None:
    if self._local is None:
      return
    jax.profiler.stop_trace()
    if self._local != self._directory:
      for file in pathlib.Path(self._local).rglob("*"):
        if file.is_file():
          name = file.relative_to(self._local).as_posix()
          (object_store.absolute(self._directory) / name).write_bytes(file.read_bytes())
      shutil.rmtree(self._local)
    self._local = None

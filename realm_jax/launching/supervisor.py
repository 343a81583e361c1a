"""The jobs of a pre-training, and processes on one machine: restarted if killed, ended together."""

import contextlib
import dataclasses
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from realm_jax.foundations import child_processes
from realm_jax.launching.stop_signal import STOPPED

_POLL_SECONDS = 0.2
_LOG_LINES_SHOWN = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
  """One process to supervise.

  Attributes:
    name: Name of the process and of its log.
    shown: Whether its output goes to the terminal instead of the log.
    environment: Variables in addition to those of this process.
    finished: Called after exit code 0, which a job that was asked to stop may also return.
  """

  name: str
  command: Sequence[str]
  shown: bool = False
  environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
  finished: Callable[[], bool] = lambda: True


def realm_command(job: str, *, gin_file: str, keywords: Mapping[str, object]) -> list[str]:
  """Returns the command line of a job for this machine's Python."""
  command = [sys.executable, "-m", "realm_jax.main", job, f"--gin_file={gin_file}"]
  return [*command, *as_flags(keywords)]


def as_flags(keywords: Mapping[str, object]) -> list[str]:
  """Returns keywords as flags of a command line; each item of a sequence has its own."""
  return [
    f"--{name}={each}"
    for name, value in keywords.items()
    for each in (value if isinstance(value, (tuple, list)) else [value])
  ]


def training_jobs(
  *,
  workdir: str,
  corpus: str,
  passages: str,
  num_steps: int,
  start: Sequence[str] = (),
  questions: str | None = None,
) -> dict[str, dict[str, Any]]:
  """Returns the keywords of the jobs of a pre-training, which share one directory, by job.

  They are a trainer, an index builder and, with questions, an evaluator.

  Args:
    workdir: Directory for `pretrain/`, `index/` and `evaluation/`.
    questions: Questions for `realm evaluate --follow=true`.
  """
  run, index = os.path.join(workdir, "pretrain"), os.path.join(workdir, "index")
  shared = {"passages": passages, "index": index}
  following = {"checkpoints": os.path.join(run, "checkpoints"), "until_step": num_steps, **shared}
  jobs = {
    "pretrain": {
      "workdir": run,
      "corpus": corpus,
      "num_steps": num_steps,
      **shared,
      **({"start": start} if start else {}),
    },
    "build_index": {"follow": True, **following},
  }
  if questions is not None:
    output = os.path.join(workdir, "evaluation")
    jobs["evaluate"] = {"follow": True, "questions": questions, "output": output, **following}
  return jobs


def supervise(
  processes: Sequence[Process], *, logs: str, max_restarts: int = 3, grace_seconds: float = 60
) -> None:
  """Runs processes until all have finished.

  A process that was killed by a signal, or ended before it had finished, is restarted and resumes.
  A process that failed with an exit code would fail again, so the others are ended as well.
  Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 are passed on as SIGTERM, on which jobs save; so is the end of
  this process.

  Args:
    processes: Processes with distinct names.
    logs: Directory of the logs; restarts append to `NAME.log`.
    grace_seconds: Seconds between SIGTERM and SIGKILL.

  Raises:
    KeyboardInterrupt: After one of these signals, when every process has ended.
    ChildProcessError: If a process failed; the message names it and its log.
  """
  os.makedirs(logs, exist_ok=True)
  running: dict[str, subprocess.Popen] = {}
  restarts = {process.name: 0 for process in processes}
  with sigterm_interrupts(), contextlib.ExitStack() as at_end:
    at_end.callback(lambda: _end(running.values(), grace_seconds))
    for process in processes:
      running[process.name] = _start(process, logs)
    while running:
      time.sleep(_POLL_SECONDS)
      for process in processes:
        code = running[process.name].poll() if process.name in running else None
        if code is None:
          continue
        del running[process.name]
        if code == 0 and process.finished():
          continue
        if code not in (0, STOPPED) and code > 0 or restarts[process.name] == max_restarts:
          raise ChildProcessError(_failure(process, code, restarts[process.name], logs))
        restarts[process.name] += 1
        print(
          f"{process.name} was ended by {_ending(code)}; "
          f"restart {restarts[process.name]} of {max_restarts}",
          file=sys.stderr,
          flush=True,
        )
        running[process.name] = _start(process, logs)


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
  """Makes SIGTERM, SIGHUP and SIGUSR1, unless ignored, raise `KeyboardInterrupt`, like Ctrl-C."""

  def interrupt(signum, frame):
    raise KeyboardInterrupt

  # nohup ignores SIGHUP.
  known = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
  numbers = [n for n in known if signal.getsignal(n) != signal.SIG_IGN]
  before = {number: signal.signal(number, interrupt) for number in numbers}
  try:
    yield
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)


def _start(process: Process, logs: str) -> subprocess.Popen:
  print(f"  {shlex.join(process.command)}", flush=True)
  log = None if process.shown else open(_log(process, logs), "ab")
  try:
    environment = {**os.environ, **process.environment}
    return child_processes.start(process.command, output=log, environment=environment)
  finally:
    if log is not None:
      log.close()


def _end(running: Collection[subprocess.Popen], grace_seconds: float) -> None:
  deadline = time.monotonic() + grace_seconds
  for child in running:
    child.terminate()
  for child in running:
    try:
      child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
      child.kill()
      child.wait()


def _failure(process: Process, code: int, restarts: int, logs: str) -> str:
  failed = code > 0 and code != STOPPED
  end = f"exit code {code}" if failed else f"{_ending(code)} after {restarts} restarts"
  if process.shown:
    return f"{process.name} ended with {end}"
  with open(_log(process, logs), "rb") as file:
    tail = file.read()[-4000:].decode(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
  return f"{process.name} ended with {end}; {_log(process, logs)} ends with: {' | '.join(tail)}"


def _ending(code: int) -> str:
  return signal.Signals(-code).name if code < 0 else "a request to stop"


def _log(process: Process, logs: str) -> str:
  return os.path.join(logs, f"{process.name}.log")

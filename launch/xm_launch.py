"""Launches trainer, index builder and evaluator as jobs of one XManager experiment.

  python launch/xm_launch.py --workdir=/data/run --gin_file=gin/experiments/simple_wikipedia.gin \
    --corpus=/data/passages --passages=/data/passages --questions=/data/questions.jsonl \
    --num_steps=1000
  python launch/xm_launch.py --workdir=/data/ablation --sweep=gin/experiments/ablation.sweep

The jobs share only the directory. Each entry of a sweep file (see `sweep.py`) becomes a work
unit in a directory of its own: all three jobs for `pretrain`, otherwise the job that the file
names. See docs/launching.md for Vertex AI and Kubernetes.
"""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
import sweep as sweeps  # next to this file
from absl import app, flags
from xmanager import xm, xm_local

from realm_jax.launching.supervisor import as_flags, sigterm_interrupts, training_jobs

EXECUTORS = ("local", "vertex", "kubernetes")
_SECONDS_TO_SAVE = 60

_WORKDIR = flags.DEFINE_string("workdir", None, "directory of the experiment", required=True)
_NAME = flags.DEFINE_string("name", "realm", "name of the experiment")
_GIN_FILES = flags.DEFINE_multi_string("gin_file", [], "may be repeated; a sweep has its own")
_GIN_BINDINGS = flags.DEFINE_multi_string("gin", [], "NAME=VALUE for all jobs; may be repeated")
_SWEEP = flags.DEFINE_string("sweep", None, "sweep file; None launches a single training")
_CORPUS = flags.DEFINE_string("corpus", None, "training corpus")
_PASSAGES = flags.DEFINE_string("passages", None, "knowledge corpus")
_QUESTIONS = flags.DEFINE_string("questions", None, "for the evaluator; None launches none")
_NUM_STEPS = flags.DEFINE_integer("num_steps", None, "length of the training")
_START = flags.DEFINE_multi_string("start", None, "as of `realm pretrain`; may be repeated")
_OF_TRAININGS = (_CORPUS, _PASSAGES, _QUESTIONS, _NUM_STEPS, _START)
_EXECUTOR = flags.DEFINE_enum("executor", "local", EXECUTORS, "where the jobs run")
_IMAGE = flags.DEFINE_string("image", None, "container image with realm_jax; not for local jobs")
_RESOURCES = flags.DEFINE_multi_string(
  "resources",
  [],
  "JOB:KIND=N,... such as pretrain:tpu_v3=8; others get 8 cores, 30 GiB; not for local",
)


class LaunchError(Exception):
  """Describes in one line what is wrong with the command line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
  """A work unit: its name, and the arguments of `realm` for each of its jobs."""

  name: str
  jobs: Mapping[str, Sequence[str]]


def units() -> list[Unit]:
  """Returns the work units that the flags describe.

  Raises:
    LaunchError: If a flag is missing, or would do nothing.
  """
  common = [
    *(f"--gin_file={file}" for file in _GIN_FILES.value),
    *(f"--gin.{binding}" for binding in _GIN_BINDINGS.value),
  ]
  if _SWEEP.value is None:
    return [Unit(name=_NAME.value, jobs=_training(_WORKDIR.value, common))]
  plan = sweeps.read_sweep(_SWEEP.value)
  unused = [f"--{flag.name}" for flag in _OF_TRAININGS if flag.value is not None]
  if plan.job != "pretrain" and unused:
    raise LaunchError(
      f"{_SWEEP.value} runs {plan.job}, for which {', '.join(unused)} would do nothing; omit it, "
      "and set keywords of the job with --gin"
    )
  found = []
  for unit in plan.units:
    workdir = os.path.join(_WORKDIR.value, unit.name)
    bindings = [f"--gin.{name}={value}" for name, value in unit.bindings.items()]
    arguments = [f"--gin_file={plan.gin_file}", *common, *bindings]
    if plan.job == "pretrain":
      jobs = _training(workdir, arguments)
    else:
      name = os.path.basename(plan.job).removesuffix(".py")
      jobs = {name: [plan.job, *arguments, f"--workdir={workdir}"]}
    found.append(Unit(name=unit.name, jobs=jobs))
  return found


def _training(workdir: str, common: Sequence[str]) -> dict[str, list[str]]:
  needed = (_CORPUS, _PASSAGES, _NUM_STEPS)
  missing = [f"--{flag.name}" for flag in needed if flag.value is None]
  if missing:
    raise LaunchError(f"a training needs {', '.join(missing)}")
  given: dict[str, Any] = {
    flag.name: flag.value for flag in _OF_TRAININGS if flag.value is not None
  }
  jobs = training_jobs(workdir=workdir, **given)
  return {job: [job, *common, *as_flags(keywords)] for job, keywords in jobs.items()}


def resources(job: str) -> dict[str, int]:
  """Returns the resources of a job, such as `{"tpu_v3": 8}`.

  Raises:
    LaunchError: If --resources is malformed.
  """
  for request in _RESOURCES.value:
    name, _, kinds = request.partition(":")
    if name == job:
      try:
        pairs = [kind.split("=") for kind in kinds.split(",")]
        return {kind: int(count) for kind, count in pairs}
      except ValueError as error:
        raise LaunchError(f"--resources={request}; write it like pretrain:tpu_v3=8") from error
  return {"cpu": 8, "ram": 30 * xm.GiB}


def _environment(job: str) -> dict[str, str]:
  """Returns the variables that keep a job from computing on the CPU if its TPU does not come up."""
  tpus = sum(count for kind, count in resources(job).items() if kind.startswith("tpu"))
  return {"JAX_PLATFORMS": "tpu", "REALM_DEVICES": f"tpu:{tpus}"} if tpus else {}


def executor(job: str) -> xm.Executor:
  """Returns where a job runs, and its resources.

  Raises:
    LaunchError: If XManager cannot provide them.
  """
  if _EXECUTOR.value == "local":
    # Otherwise XManager waits for the output of every job before it notices that one has failed.
    return xm_local.Local(experimental_stream_output=False)
  wanted = resources(job)
  try:
    requirements = xm.JobRequirements(**wanted)
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise LaunchError(f"--resources of {job}: unknown to XManager ({error})") from error
  if _EXECUTOR.value == "vertex":
    return xm_local.Vertex(requirements)
  tpus = [kind for kind in wanted if kind.startswith("tpu")]
  if tpus:
    # XManager's pods request only CPU and memory, so none would ever see a TPU.
    raise LaunchError(
      f"--resources of {job}: XManager cannot request {tpus[0]} from a cluster; start TPU jobs "
      "with launch/gcloud/tpu.py"
    )
  return xm_local.Kubernetes(requirements)


def package(experiment: xm.Experiment, target: xm.Executor) -> xm.Executable:
  """Returns `realm` as a local program, or as a container image.

  Raises:
    LaunchError: If an image is needed and none is given.
  """
  if _EXECUTOR.value == "local":
    program = xm.binary(target.Spec(), path=sys.executable, args=["-m", "realm_jax.main"])
  elif _IMAGE.value is None:
    raise LaunchError(f"--executor={_EXECUTOR.value} needs --image; launch/Dockerfile makes one")
  else:
    program = xm.container(target.Spec(), image_path=_IMAGE.value)
  [executable] = experiment.package([program])
  return executable


def launch(planned: Sequence[Unit]) -> None:
  """Starts all work units; waits for local ones, which end with this program.

  Raises:
    LaunchError: If --resources names none of the jobs, or a local job fails.
  """
  executors = {job: executor(job) for unit in planned for job in unit.jobs}
  for request in _RESOURCES.value:
    if request.partition(":")[0] not in executors:
      raise LaunchError(
        f"--resources={request}: no such job is launched; choose one of {', '.join(executors)}"
      )
  try:
    with xm_local.create_experiment(experiment_title=_NAME.value) as experiment:
      executable = package(experiment, next(iter(executors.values())))
      for unit in planned:
        print(f"{unit.name}: {', '.join(unit.jobs)}", flush=True)
        jobs = {
          name: xm.Job(
            executable,
            executor=executors[name],
            name=name,
            args=list(arguments),
            env_vars=_environment(name),
          )
          for name, arguments in unit.jobs.items()
        }
        experiment.add(xm.JobGroup(**jobs))
  except RuntimeError as error:
    # How XManager reports an exit code.
    raise LaunchError(f"a job failed; its output is above ({error})") from error
  finally:
    if _EXECUTOR.value == "local":
      _end_local_jobs()


def _end_local_jobs() -> None:
  # When XManager ends, it signals the shells that it started but not the jobs in them.
  left = psutil.Process().children(recursive=True)
  for process in left:
    with contextlib.suppress(psutil.NoSuchProcess):
      process.terminate()
  psutil.wait_procs(left, timeout=_SECONDS_TO_SAVE)


def main(argv: Sequence[str]) -> int:
  """Launches the jobs that the flags describe; returns the exit code."""
  del argv
  try:
    with sigterm_interrupts():
      launch(units())
  except (LaunchError, OSError, ValueError) as error:
    print(f"xm_launch: {error}", file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    return 130
  return 0


if __name__ == "__main__":
  app.run(main)

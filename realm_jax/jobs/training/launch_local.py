"""Trains on one machine: supervises a trainer, an index builder and then an evaluator."""

import os

from realm_jax.checkpoints.orbax_files import steps
from realm_jax.foundations import choices, object_store
from realm_jax.index import generations
from realm_jax.launching import device_shares
from realm_jax.launching.supervisor import Process, realm_command, supervise, training_jobs
from realm_jax.training.recipes.pretraining import Pretraining
from realm_jax.training.run.starts import Starts


def launch_local(
  *,
  workdir: str,
  corpus: str,
  passages: str,
  pretraining: Pretraining = Pretraining(),
  start: Starts = (),
  questions: str | None = None,
  builder_devices: str | None = None,
  config: str | None = None,
  max_restarts: choices.CountOrZero = 3,
) -> None:
  """Runs `realm pretrain` and `realm build_index` until the training and its index are finished.

  A killed process is restarted and resumes. Ctrl-C and SIGTERM save and end both; the same command
  then resumes.

  Args:
    workdir: Directory for `pretrain/`, `index/` and `logs/`.
    corpus: Directory of the training corpus.
    passages: Directory of the knowledge corpus.
    pretraining: The configuration of the pre-training.
    start: See `realm pretrain`.
    questions: Questions to evaluate the last checkpoint and generation on; None skips evaluation.
    builder_devices: Devices of the index builder: "cpu", or numbers of GPUs such as "6,7", which
      the trainer then does not use. None uses the last of several GPUs, or part of the memory of
      the only one. Only one of the two processes can open a TPU.
    config: Gin file that the processes read; None uses this job's own configuration in `workdir`.
    max_restarts: Maximum number of restarts per process.

  Raises:
    ChildProcessError: If a process fails.
    ValueError: If `workdir` is in an object store, or the devices cannot be divided like this.
  """
  object_store.check_local(workdir=workdir)
  shares = device_shares.share(builder_devices)
  print(shares.description, flush=True)
  num_steps = pretraining.run.num_steps
  jobs = training_jobs(
    workdir=workdir,
    corpus=corpus,
    passages=passages,
    num_steps=num_steps,
    start=start,
    questions=questions,
  )
  trainer, builder = jobs["pretrain"], jobs["build_index"]
  checkpoints, index = builder["checkpoints"], builder["index"]
  logs = os.path.join(workdir, "logs")

  def trained() -> bool:
    return max(steps(checkpoints), default=-1) >= num_steps

  def indexed() -> bool:
    newest = generations.newest(index)
    try:
      manifest = None if newest is None else generations.read_manifest(index, newest)
    except generations.DamagedGenerationError:
      return False  # the builder will rebuild it
    return manifest is not None and manifest.training_step >= num_steps

  def process(job: str, keywords: dict, **settings) -> Process:
    gin_file = config or os.path.join(workdir, "launch_local_config.gin")
    command = realm_command(job, gin_file=gin_file, keywords=keywords)
    return Process(name=job, command=command, **settings)

  supervise(
    [
      process("build_index", builder, finished=indexed, environment=shares.builder),
      process("pretrain", trainer, shown=True, finished=trained, environment=shares.trainer),
    ],
    logs=logs,
    max_restarts=max_restarts,
  )
  if questions is not None:
    # The training has ended, so its newest generation is evaluated and none is waited for.
    settings = {k: v for k, v in jobs["evaluate"].items() if k not in ("follow", "until_step")}
    supervise([process("evaluate", settings, shown=True)], logs=logs, max_restarts=max_restarts)

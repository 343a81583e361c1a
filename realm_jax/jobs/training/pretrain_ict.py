"""Trains the dual encoder on the inverse cloze task, as `pretrain_contrastive` does by default."""

from realm_jax.jobs.training.pretrain_contrastive import pretrain_contrastive
from realm_jax.runs.contrastive import ContrastiveTraining
from realm_jax.runs.training_run import WarmStart


def pretrain_ict(
  *,
  workdir: str,
  passages: str,
  examples: str | None = None,
  warm_start: WarmStart | None = None,
  ict: ContrastiveTraining = ContrastiveTraining(),
) -> None:
  """Trains the dual encoder on the inverse cloze task and writes checkpoints.

  Args:
    workdir: Directory of the run; an existing run is resumed.
    passages: Directory of a prepared corpus.
    examples: Directory of prepared examples; None makes them while training.
    warm_start: Checkpoint to take parameters from; None starts from random weights.
    ict: The configuration of the training.

  Raises:
    FileNotFoundError: If the corpus is missing.
    ValueError: If sizes do not match each other.
  """
  pretrain_contrastive(
    workdir=workdir, passages=passages, examples=examples, warm_start=warm_start, contrastive=ict
  )

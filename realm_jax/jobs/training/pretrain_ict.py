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
    workdir: See `pretrain_contrastive`, as all others.
    passages: See there.
    examples: See there.
    warm_start: See there.
    ict: The training.
  """
  pretrain_contrastive(
    workdir=workdir, passages=passages, examples=examples, warm_start=warm_start, contrastive=ict
  )

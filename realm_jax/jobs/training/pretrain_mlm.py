"""Trains a masked language model on a corpus, to warm-start both encoders of REALM."""

from collections.abc import Sequence

from realm_jax.training.plain_training import MaskedLmTraining
from realm_jax.training.training_run import WarmStart


def pretrain_mlm(
  *,
  workdir: str,
  passages: str,
  warm_starts: Sequence[WarmStart] = (),
  masked_lm: MaskedLmTraining = MaskedLmTraining(),
) -> None:
  """Trains BERT (Devlin et al. 2019) without next-sentence prediction and writes checkpoints.

  The paper starts from a published BERT. Where there is none for a language or a vocabulary, this
  makes one. A pre-training takes it with `warm_starts` from `knowledge_augmented_encoder`.

  Args:
    workdir: Directory of the run; an existing run is resumed.
    passages: Directory of a prepared corpus.
    warm_starts: Checkpoints to take parameters from; the others start from random weights.
    masked_lm: The configuration of the training.
  """
  masked_lm.train(workdir, passages=passages, warm_starts=warm_starts)

"""The jobs of a pre-training, which share one directory."""

import os
from typing import Any


def training_jobs(
  *,
  workdir: str,
  corpus: str,
  passages: str,
  num_steps: int,
  retriever_checkpoints: str | None = None,
  warm_start: str | None = None,
  questions: str | None = None,
) -> dict[str, dict[str, Any]]:
  """Returns the keywords of a trainer, an index builder and, with questions, an evaluator, by job.

  Args:
    workdir: Directory for `pretrain/`, `index/` and `evaluation/`.
    questions: Questions for `realm evaluate --follow=true`.
  """
  run, index = os.path.join(workdir, "pretrain"), os.path.join(workdir, "index")
  shared = {"passages": passages, "index": index}
  following = {"checkpoints": os.path.join(run, "checkpoints"), "until_step": num_steps, **shared}
  starts = {"retriever_checkpoints": retriever_checkpoints, "warm_start": warm_start}
  jobs = {
    "pretrain": {
      "workdir": run,
      "corpus": corpus,
      "num_steps": num_steps,
      **shared,
      **{name: value for name, value in starts.items() if value is not None},
    },
    "build_index": {"follow": True, **following},
  }
  if questions is not None:
    output = os.path.join(workdir, "evaluation")
    jobs["evaluate"] = {"follow": True, "questions": questions, "output": output, **following}
  return jobs

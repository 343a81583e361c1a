"""Precision, recall and F1 of entities, as CoNLL counts them; by seqeval (the extra `ner`)."""

import importlib.util
from collections.abc import Sequence


def check_available() -> None:
  """Checks that entities can be counted here.

  Raises:
    ValueError: if seqeval is not installed.
  """
  if importlib.util.find_spec("seqeval") is None:
    raise ValueError("figures of entities need seqeval: pip install -e '.[ner]' in the checkout")


def entity_figures(
  references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> dict:
  """Returns `precision`, `recall`, `f1` and `entities`, and the same of each label in `labels`.

  An entity is right if its label, its first and its last word are; `entities` is how many the
  references hold. Every entity counts alike (micro average).

  Args:
    references: tags of the words of each sentence.
    predictions: the same of the tagger.

  Raises:
    ValueError: if seqeval is not installed, or the two have not as many sentences and words.
  """
  check_available()
  # Here and not above: a project without the extra still lists and runs its other jobs.
  from seqeval.metrics import classification_report

  if [len(tags) for tags in references] != [len(tags) for tags in predictions]:
    raise ValueError("references and predictions are of other sentences: their words differ")
  rows = classification_report(
    [list(tags) for tags in references],
    [list(tags) for tags in predictions],
    output_dict=True,
    zero_division=0,
  )
  total = rows.pop("micro avg")
  for other in ("macro avg", "weighted avg"):
    rows.pop(other)
  return {**_plain(total), "labels": {label: _plain(row) for label, row in rows.items()}}


def _plain(row) -> dict[str, float]:
  return {
    "precision": round(float(row["precision"]), 4),
    "recall": round(float(row["recall"]), 4),
    "f1": round(float(row["f1-score"]), 4),
    "entities": int(row["support"]),
  }

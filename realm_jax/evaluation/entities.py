"""Precision, recall and F1 of entities as in CoNLL's evaluation, by seqeval (the extra `ner`)."""

import importlib.util
from collections.abc import Sequence


def check_available() -> None:
  """Checks that seqeval is installed.

  Raises:
    ValueError: If it is not.
  """
  if importlib.util.find_spec("seqeval") is None:
    raise ValueError("metrics of entities need seqeval: pip install -e '.[ner]' in the checkout")


def entity_figures(
  references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> dict:
  """Returns `precision`, `recall`, `f1` and `entities`, and the same per label in `labels`.

  An entity is correct if its label, first word and last word are. `entities` is their number in the
  references. Every entity has the same weight (micro average).

  Args:
    references: Tags of the words of each sentence.
    predictions: Predicted tags of the same words.

  Raises:
    ValueError: If seqeval is not installed, or the numbers of sentences or words differ.
  """
  check_available()
  # Imported here so that everything else works without the extra.
  from seqeval.metrics import classification_report

  if [len(tags) for tags in references] != [len(tags) for tags in predictions]:
    raise ValueError("references and predictions belong to different sentences")
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

"""Writes a page about a training run: curves, generations, alarms and retrieved passages."""

import dataclasses
import json
import os

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.foundations import atomic_files, object_store
from realm_jax.foundations.output_kinds import FileKind
from realm_jax.training import alarms, retrieved_samples
from realm_jax.training.metric_writers import METRICS_FILE, SAMPLES_FILE
from realm_jax.training.retrieval_trace import RETRIEVALS, Trace
from realm_jax.training.swap_log import SWAPS_FILE
from realm_jax.web import report_page

_QUERIES, _MOST_COMMON = 32, 10  # shown
_REPORT = FileKind(
  name="a report",
  start=r'<!DOCTYPE html>\n(.*\n){4}<meta name="color-scheme" content="light dark">',
)


def report(
  run: str,
  *,
  output: str | None = None,
  step: int | None = None,
  passages: str | None = None,
) -> str:
  """Writes `report.html`, a self-contained page.

  Args:
    run: The workdir of a training run.
    output: Path of the page; None means `report.html` in the workdir.
    step: Step whose retrieved passages to show, if the run kept a `retrieval_trace`.
    passages: Directory of the knowledge corpus, for the texts of these passages.

  Raises:
    FileNotFoundError: If the directory has no metrics.
    ValueError: If the trace does not have the step, or is of another corpus.
  """
  output = output or os.path.join(run, "report.html")
  _REPORT.check(output)
  path = os.path.join(run, METRICS_FILE)
  if not object_store.absolute(path).exists():
    raise FileNotFoundError(f"no {METRICS_FILE} in {run}; give the workdir of a training run")
  rows = _read(path)
  samples = _read(os.path.join(run, SAMPLES_FILE))
  if step is not None:
    samples.append({"step": step, "samples/traced": _retrieved(run, step, passages)})
  view = report_page.ReportView(
    title=object_store.absolute(run).name,
    rows=rows,
    swaps=_read(os.path.join(run, SWAPS_FILE)),
    samples=samples,
    alarms=[dataclasses.asdict(alarm) for alarm in alarms.find(rows)],
  )
  atomic_files.write_text(output, report_page.rendered(view), kind=_REPORT)
  print(output, flush=True)
  return output


def _read(path: str) -> list[dict]:
  file = object_store.absolute(path)
  lines = file.read_text().split("\n") if file.exists() else [""]
  # A running training may be writing its last line.
  return [json.loads(line) for line in lines[:-1]]


def _retrieved(run: str, step: int, passages: str | None) -> str:
  """Returns the passages that most queries of a step read, and those of its first queries."""
  if passages is None:
    raise ValueError(f"step={step} needs the corpus that was retrieved from; give --passages")
  store = PassageStore(passages)
  wanted = {"corpus_fingerprint": store.fingerprint}
  traced = Trace(os.path.join(run, RETRIEVALS), settings=wanted)[step]
  ids_BxK, scores_BxK = traced.passages
  size = len(ids_BxK)
  ids, counts = np.unique(ids_BxK, return_counts=True)
  common = np.argsort(-counts, kind="stable")[:_MOST_COMMON]
  read = [(f"share of {size} queries", ids[common], counts[common] / size)]
  read += [
    (f"query {row + 1} of {size}", ids_BxK[row], scores_BxK[row])
    for row in range(min(size, _QUERIES))
  ]
  made = f"generation {traced.generation} of step {traced.training_step}"
  tables = [(name, made, zip(ids, scores, strict=True)) for name, ids, scores in read]
  return "\n\n".join(retrieved_samples.table(*table, store=store) for table in tables)

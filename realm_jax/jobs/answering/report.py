"""Writes a page about a training run: curves, generations, alarms and retrieved passages."""

import dataclasses
import json
import os

from absl import logging

from realm_jax import atomic_files, object_store
from realm_jax.index import generations
from realm_jax.inspector import report_page
from realm_jax.runs.swap_log import SWAPS_FILE
from realm_jax.training import alarms
from realm_jax.training.goodput import GOODPUT_FILE, account
from realm_jax.training.metric_writers import METRICS_FILE, SAMPLES_FILE


def report(run: str, *, index: str | None = None, output: str | None = None) -> str:
  """Writes `report.html`, a self-contained page.

  Args:
    run: The workdir of a training run.
    index: Directory of its index generations, whose scorecards to show; None shows none.
    output: Path of the page; None means `report.html` in the workdir.

  Returns:
    The path of the page.

  Raises:
    FileNotFoundError: If the directory has no metrics.
  """
  path = os.path.join(run, METRICS_FILE)
  if not object_store.absolute(path).exists():
    raise FileNotFoundError(f"no {METRICS_FILE} in {run}; give the workdir of a training run")
  rows = _read(path)
  view = report_page.ReportView(
    title=object_store.absolute(run).name,
    rows=rows,
    swaps=_read(os.path.join(run, SWAPS_FILE)),
    samples=_read(os.path.join(run, SAMPLES_FILE)),
    generations=[] if index is None else _scorecards(index),
    goodput=account(_read(os.path.join(run, GOODPUT_FILE))).table(),
    alarms=[dataclasses.asdict(alarm) for alarm in alarms.find(rows)],
  )
  output = output or os.path.join(run, "report.html")
  atomic_files.write_text(output, report_page.rendered(view))
  print(output, flush=True)
  return output


def _read(path: str) -> list[dict]:
  file = object_store.absolute(path)
  lines = file.read_text().split("\n") if file.exists() else [""]
  # A running training may be writing its last line.
  return [json.loads(line) for line in lines[:-1]]


def _scorecards(index: str) -> list[dict]:
  cards = []
  for number in generations.all_generations(index):
    try:
      manifest = generations.read_manifest(index, number)
    except generations.DamagedGenerationError as error:
      logging.warning("the report omits it: %s", error)
      continue
    cards.append(
      {
        "generation": number,
        "training_step": manifest.training_step,
        "scorecard": {
          **{f"index recall@{k}": value for k, value in manifest.recall.items()},
          **manifest.scorecard,
        },
      }
    )
  return cards

"""What a run writes, read back from its files."""

import json
import time

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator

from realm_jax.foundations import text_files
from realm_jax.training.run import metric_writers


def read_lines(directory):
  lines = (directory / metric_writers.METRICS_FILE).read_text("utf-8").splitlines()

  def refuse(name):
    raise ValueError(f"{name} is no JSON")

  return [json.loads(line, parse_constant=refuse) for line in lines]


def test_every_write_is_one_json_line(tmp_path):
  writer = metric_writers.MetricWriter(tmp_path / "run", step=0)
  before = time.time()
  writer.write_scalars(10, {"loss/total": jnp.float32(0.5), "index/generation": 3})
  assert read_lines(tmp_path / "run")[0]["loss/total"] == 0.5  # readable while the run goes on
  writer.write_scalars(20, {"nan": np.nan, "inf": jnp.inf, "low": -np.inf, "zero": 0.0})
  writer.close()
  first, second = read_lines(tmp_path / "run")
  assert before <= first.pop("seconds") <= second.pop("seconds") <= time.time()
  assert first == {"step": 10, "loss/total": 0.5, "index/generation": 3}
  assert second == {"step": 20, "nan": None, "inf": None, "low": None, "zero": 0}


def write_steps(directory, *steps, after):
  writer = metric_writers.MetricWriter(directory, step=after)
  for step in steps:
    writer.write_scalars(step, {"loss": 10 * after + step})
  writer.close()


def test_what_a_killed_run_wrote_after_its_checkpoint_is_written_again(tmp_path):
  write_steps(tmp_path, 2, 4, 6, after=0)
  with open(tmp_path / metric_writers.METRICS_FILE, "ab") as file:
    file.write(b'{"step": 8, "lo')
  write_steps(tmp_path, 6, 8, after=4)
  assert [(line["step"], line["loss"]) for line in read_lines(tmp_path)] == [
    (2, 2),
    (4, 4),
    (6, 46),
    (8, 48),
  ]


@pytest.mark.parametrize(
  "damage",
  [
    b"\0" * 40,
    b'{"step": 2, "seco{"step": 3, "loss": 3}\n',
    b"\n \r\n",
    b"\xff\xfe\n",
    b"[1]\n",
    b"null\n",
    b'{"loss": 1}\n',
    b'{"step": "2"}\n',
    b"{\r\n",
  ],
)
def test_damaged_lines_are_dropped_and_the_others_stay(tmp_path, damage, caplog):
  for name in (metric_writers.METRICS_FILE, metric_writers.SAMPLES_FILE, metric_writers.SWAPS_FILE):
    (tmp_path / name).write_bytes(
      b'{"step": 1, "loss": 1}\n' + damage + b'{"step": 4, "loss": 4}\n' + damage[:9]
    )
  with caplog.at_level("WARNING", logger="absl"):
    write_steps(tmp_path, 5, after=4)
    metric_writers.SwapLog(str(tmp_path), step=4)
  assert [line["step"] for line in read_lines(tmp_path)] == [1, 4, 5]
  for name in (metric_writers.SAMPLES_FILE, metric_writers.SWAPS_FILE):
    assert [row["step"] for row in text_files.read_log(tmp_path / name)] == [1, 4]
  assert all("damaged lines left out" in message for message in caplog.messages)


def test_tensorboard_shows_each_step_once_after_going_back(tmp_path):
  for first, last in ((0, 6), (4, 8), (2, 3)):
    write_steps(tmp_path, *range(first + 1, last + 1), after=first)
  found = plugin_event_accumulator.EventAccumulator(str(tmp_path)).Reload()
  assert [row.step for row in found.Tensors("loss")] == [1, 2, 3]


def test_tensorboard_reads_what_a_run_writes(tmp_path):
  writer = metric_writers.MetricWriter(tmp_path, step=0)
  writer.write_scalars(1, {"loss/total": jnp.float32(0.125)})
  writer.write_scalars(2, {"loss/total": np.nan})
  writer.write_texts(2, {"samples/retrieved": "é | x"})
  writer.flush()
  found = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
  writer.close()
  shown = [(row.step, row.tensor_proto.float_val[0]) for row in found.Tensors("loss/total")]
  assert shown == [(1, 0.125), (2, pytest.approx(np.nan, nan_ok=True))]
  (text,) = found.Tensors("samples/retrieved")
  assert text.tensor_proto.string_val[0].decode() == "é | x"
  assert found.PluginTagToContent("text").keys() == {"samples/retrieved"}


def test_texts_are_kept_for_reports(tmp_path):
  for step in (1, 2):
    writer = metric_writers.MetricWriter(tmp_path, step=0)
    writer.write_texts(step, {"samples/retrieved": "é | x"})
    writer.close()
  (line,) = (tmp_path / metric_writers.SAMPLES_FILE).read_text("utf-8").splitlines()
  assert json.loads(line)["samples/retrieved"] == "é | x" and json.loads(line)["step"] == 2


def test_a_resumed_run_counts_from_the_row_it_resumes_from(tmp_path):
  reported = []
  for step, skipped in ((100, 90), (200, 190), (300, 290)):
    writer = metric_writers.MetricWriter(tmp_path, step=step - 100, on_end=reported.append)
    writer.write_scalars(step, {"skipped_steps": skipped})
  assert not reported  # each process has seen two rows
  writer.write_scalars(400, {"skipped_steps": 390})
  assert [alarm.name for alarm in reported] == ["steps skipped"]


def test_an_alarm_is_told_once(tmp_path, caplog):
  writer = metric_writers.MetricWriter(tmp_path, step=0)
  with caplog.at_level("WARNING", logger="absl"):
    for step in range(1, 8):
      writer.write_scalars(step, {"retrieval/null_mass": jnp.float32(1.0)})
  (record,) = caplog.records
  assert "ALARM: null mass since step 1" in record.getMessage()


def test_a_collapse_is_reported_when_it_has_lasted_and_not_if_it_is_over(tmp_path):
  reported = []
  writer = metric_writers.MetricWriter(tmp_path, step=0, on_end=reported.append)

  def write(steps, share):
    for step in steps:
      writer.write_scalars(step, {"retrieval/hub_share": share, "retrieval/null_mass": 1.0})

  write([25, 50], 0.9)
  write([75], 0.1)
  write([100, 125, 140], 0.9)
  assert not reported
  write([150], 0.9)
  (alarm,) = reported
  assert (alarm.name, alarm.first_step) == ("one passage for everything", 100)
  write([175, 200, 225], 0.1)
  assert len(reported) == 1

"""The account of a run's time, on rows made by hand and on those of real steps."""

import json
import resource
import time

import jax
import jax.numpy as jnp
import pytest

from realm_jax import stopwatch
from realm_jax.training import goodput


def row(step, seconds, /, *, resumed=None, **spent):
  marks = {} if resumed is None else {"resumed": resumed}
  return {"step": step, "seconds": seconds, "spent": spent, **marks}


def spent(rows):
  return {name: seconds for name, seconds, _ in goodput.account(rows).table()}


UNDISTURBED = [
  row(1, 110.0, resumed=0, start=6.0, compile=4.0),
  row(10, 130.0, step=15.0, data=2.0, checkpoint=3.0),
  row(20, 150.0, step=17.0, index_wait=1.0, swap=1.0, evaluation=1.0),
]


def test_the_time_of_an_undisturbed_run_is_that_of_its_activities():
  account = goodput.account(UNDISTURBED)
  assert account.wall == 50
  assert account.goodput == 32 / 50
  assert [name for name, _, _ in account.table()] == [
    "productive steps",
    "start",
    "compilation",
    "data",
    "waiting for an index",
    "swap of an index",
    "checkpoints",
    "evaluation",
  ]
  assert str(account).startswith("goodput 64.0% of 0:00:50 (the rest: start 12.0%, ")


def test_a_killed_process_leaves_a_disruption_and_steps_done_twice():
  again = [
    row(11, 165.0, resumed=10, start=5.0),
    row(20, 185.0, step=20.0),
  ]
  found = spent(UNDISTURBED + again)
  assert found["disruption"] == 10
  assert found["steps done twice"] == 17
  assert found["productive steps"] == 15 + 20
  assert sum(found.values()) == 185 - 100


def test_after_several_kills_only_what_the_last_process_found_counts():
  rows = [
    row(30, 30.0, resumed=0, step=30.0),
    row(35, 40.0, resumed=20, step=7.0, start=2.0),
    row(12, 50.0, resumed=10, step=4.0, start=1.0),
  ]
  assert spent(rows) == {
    "productive steps": 4,
    "start": 3,
    "disruption": 1 + 5,
    "steps done twice": 37,
  }


def test_the_step_of_a_checkpoint_is_kept_and_the_begun_one_is_not():
  rows = [row(10, 1.0, resumed=0, step=1.0), row(11, 1.5, step=0.5), row(11, 3.0, resumed=10)]
  assert spent(rows) == {"productive steps": 1, "steps done twice": 0.5, "disruption": 1.5}


def test_a_suspended_machine_is_disrupted_and_a_clock_set_back_is_not():
  rows = [row(1, 10.0, resumed=0, step=10.0), row(2, 100.0, step=5.0), row(3, 50.0, step=5.0)]
  assert spent(rows) == {"productive steps": 20, "disruption": 85}


def test_the_time_until_a_finished_run_is_extended_does_not_count():
  ended = {**row(20, 20.0, resumed=0, step=20.0), "finished": True}
  assert spent([ended, row(30, 1000.0, resumed=20, step=10.0)]) == {"productive steps": 30}


def test_a_run_without_rows_has_no_time():
  assert goodput.account([]).table() == []


def rows_in(tmp_path):
  lines = (tmp_path / goodput.GOODPUT_FILE).read_text("utf-8").splitlines()
  return [json.loads(line) for line in lines]


def test_rows_have_all_of_the_time_and_programs_compiled_in_it(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(goodput, "_LEAST_SECONDS", 0.01)
  stopwatch.job.restart()
  began = time.time()
  log = goodput.GoodputLog(str(tmp_path), step=3)
  with stopwatch.job.during(goodput.STEP):
    jax.jit(lambda x: jnp.sin(x) * 3.25)(jnp.ones(5)).block_until_ready()
    time.sleep(0.1)
  log.close()
  ended = time.time()
  account = goodput.account(rows_in(tmp_path))
  assert account.wall == pytest.approx(ended - began, abs=0.05)
  assert account.seconds["compilation"] > 0
  assert 0.1 < account.seconds["productive steps"] < account.wall
  assert len(rows_in(tmp_path)) > 2
  assert capsys.readouterr().out.startswith("goodput ")


def test_a_row_that_was_cut_off_is_dropped(tmp_path):
  path = tmp_path / goodput.GOODPUT_FILE
  path.write_text(json.dumps(row(10, 1.0, resumed=0, step=1.0)) + '\n{"step": 11, "sec')
  goodput.GoodputLog(str(tmp_path), step=10).close()
  assert [r["step"] for r in rows_in(tmp_path)] == [10, 10]


def test_a_row_of_which_only_the_beginning_fits_is_not_written(tmp_path):
  log = goodput.GoodputLog(str(tmp_path), step=0)
  log.write()
  path = tmp_path / goodput.GOODPUT_FILE
  whole = path.read_text()
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 11, limits[1]))
  try:
    log.write()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert path.read_text() == whole
  log.write()
  assert all(json.loads(line) for line in path.read_text().splitlines())
  log.close()


def test_a_full_disk_costs_no_time_in_the_account(tmp_path, monkeypatch):
  log = goodput.GoodputLog(str(tmp_path), step=0)

  def full(path, line):
    raise OSError(28, "No space left on device")

  with monkeypatch.context() as patch:
    patch.setattr(goodput, "_append", full)
    time.sleep(0.02)
    log.write()
  log.close()
  assert sum(rows_in(tmp_path)[0]["spent"].values()) > 0.02

"""The requests to XManager; tests/e2e/xmanager_test.py runs them."""

import importlib.util
import pathlib
import sys

import pytest

xm = pytest.importorskip("xmanager.xm", reason="needs the extra `xmanager`")
pytestmark = pytest.mark.interop

from absl import flags  # noqa: E402
from absl.testing import flagsaver  # noqa: E402
from xmanager.cloud import auth, vertex  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "launch"))
spec = importlib.util.spec_from_file_location("xm_launch", ROOT / "launch" / "xm_launch.py")
xm_launch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(xm_launch)

TRAINING = ["--corpus=gs://b/news", "--passages=gs://b/passages", "--num_steps=7"]
SWEEP = """
job = "JOB"
gin_file = "some.gin"
summary = "summary.json"
[figures]
loss = "loss"
[grid]
SEED = [0, 1]
[list.span]
"pretraining/examples.MaskedQueryData.mask" = "random_span"
"""


@pytest.fixture
def command_line():
  def give(*arguments):
    flags.FLAGS(["xm_launch", "--workdir=gs://b/run", *arguments])

  saved = flagsaver.save_flag_values()
  yield give
  flagsaver.restore_flag_values(saved)


def test_a_training_is_three_jobs_that_share_a_directory(command_line):
  command_line(
    *TRAINING, "--start=w", "--start=v", "--questions=q.jsonl", "--gin_file=a.gin", "--gin=SEED=3"
  )
  [unit] = xm_launch.units()
  assert unit.jobs == {
    "pretrain": [
      *("pretrain", "--gin_file=a.gin", "--gin.SEED=3", "--workdir=gs://b/run/pretrain"),
      *("--corpus=gs://b/news", "--num_steps=7"),
      *("--passages=gs://b/passages", "--index=gs://b/run/index", "--start=w", "--start=v"),
    ],
    "build_index": [
      *("build_index", "--gin_file=a.gin", "--gin.SEED=3", "--follow=True"),
      *("--checkpoints=gs://b/run/pretrain/checkpoints", "--until_step=7"),
      *("--passages=gs://b/passages", "--index=gs://b/run/index"),
    ],
    "evaluate": [
      *("evaluate", "--gin_file=a.gin", "--gin.SEED=3", "--follow=True"),
      *("--questions=q.jsonl", "--output=gs://b/run/evaluation"),
      *("--checkpoints=gs://b/run/pretrain/checkpoints", "--until_step=7"),
      *("--passages=gs://b/passages", "--index=gs://b/run/index"),
    ],
  }


class Recorder:
  """A fake of Vertex AI's client."""

  def __init__(self):
    self.pools = []

  def launch(self, name, jobs):
    for job in jobs:
      arguments = xm.merge_args(job.executable.args, job.args).to_list(str)
      machine = {**vertex.get_machine_spec(job), "env": job.env_vars}
      self.pools.append((job.executable.image_path, arguments, machine))
    return name


def test_vertex_ai_gets_a_pool_a_job(command_line, tmp_path, monkeypatch):
  recorder = Recorder()
  monkeypatch.setenv("HOME", str(tmp_path))  # XManager's record of experiments
  monkeypatch.setattr(auth, "get_project_name", lambda: "p")
  monkeypatch.setattr(vertex, "_default_client", recorder)
  command_line(
    *TRAINING, "--executor=vertex", "--image=gcr.io/p/realm:1", "--resources=pretrain:tpu_v3=8"
  )
  assert xm_launch.main([]) == 0
  images, arguments, machines = zip(*recorder.pools, strict=True)
  assert set(images) == {"gcr.io/p/realm:1"}
  assert [words[0] for words in arguments] == ["pretrain", "build_index"]
  assert machines[0]["machine_type"] == "cloud-tpu"
  assert machines[0]["accelerator_count"] == 8
  assert machines[0]["env"] == {"JAX_PLATFORMS": "tpu", "REALM_DEVICES": "tpu:8"}
  assert machines[1] == {"machine_type": "n1-standard-8", "env": {}}


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--num_steps=7"], "a training needs --corpus, --passages"),
    ([*TRAINING, "--executor=vertex"], "needs --image"),
    (
      [*TRAINING, "--executor=kubernetes", "--image=i", "--resources=pretrain:tpu_v3=8"],
      "XManager cannot request tpu_v3 from a cluster; start TPU jobs with launch/gcloud/tpu.py",
    ),
    (
      [*TRAINING, "--executor=vertex", "--resources=pretrian:tpu_v3=8"],
      "--resources=pretrian:tpu_v3=8: no such job is launched; choose one of pretrain, build_index",
    ),
    (
      ["--sweep=own.sweep", "--corpus=c", "--num_steps=7"],
      "own.sweep runs own.py, for which --corpus, --num_steps would do nothing; omit it",
    ),
  ],
)
def test_a_mistake_is_one_line(command_line, tmp_path, monkeypatch, capsys, arguments, message):
  monkeypatch.setenv("HOME", str(tmp_path))
  monkeypatch.chdir(tmp_path)
  pathlib.Path("own.sweep").write_text(SWEEP.replace("JOB", "own.py"))
  command_line(*arguments)
  assert xm_launch.main([]) == 1
  error = capsys.readouterr().err
  assert error.startswith("xm_launch: ") and error.count("\n") == 1 and message in error

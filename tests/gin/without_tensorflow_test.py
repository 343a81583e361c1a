"""A trainer fed from prepared examples starts from any shipped experiment without TensorFlow."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARSE_ALL = """
import importlib.abc, pathlib, sys

class Missing(importlib.abc.MetaPathFinder):
  def find_spec(self, name, path, target=None):
    if name.split(".")[0] in ("tensorflow", "tensorflow_text", "seqio", "tokenizers"):
      raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import gin
from realm_jax.jobs.training import finetune, launch_local, pretrain, train_retriever

for experiment in sorted(pathlib.Path("gin/experiments").glob("*.gin")):
  gin.clear_config()
  try:
    gin.parse_config_file(str(experiment))
  except Exception as error:
    print(experiment.name, str(error).splitlines()[0])
"""


def test_every_experiment_is_parsed_without_tensorflow():
  parsed = subprocess.run(
    [sys.executable, "-c", PARSE_ALL], cwd=ROOT, capture_output=True, text=True, check=True
  )
  assert parsed.stdout == ""

"""Help and wrong flags need a job's signature, not the libraries that it computes with."""

import json
import subprocess
import sys

import pytest

from realm_jax import main
from realm_jax.command_line import flags

READS = """
import json
from realm_jax import main
from realm_jax.command_line import flags, signatures
with signatures.reading():
  print(json.dumps({name: flags.help_text(flags.keywords(main.find(name))) for name in main.JOBS}))
import flax.linen
from realm_jax.models import bert
assert issubclass(bert.BertEncoder, flax.linen.Module), "placeholders are forgotten"
"""
RUNS = """
import sys, time
from realm_jax import main
code = main.main(sys.argv[1:])
assert not {"jax", "tensorflow", "flax"} & sys.modules.keys()
assert time.process_time() < 2
sys.exit(code)
"""


def _run(program, *words):
  command = [sys.executable, "-c", program, *words]
  return subprocess.run(command, capture_output=True, text=True, check=False)


def test_placeholders_change_no_flag():
  ran = _run(READS)
  assert ran.returncode == 0, ran.stderr
  light = json.loads(ran.stdout)
  assert light == {name: flags.help_text(flags.keywords(main.find(name))) for name in main.JOBS}


@pytest.mark.parametrize(
  ("words", "code", "shown"),
  [
    (["pretrain", "--help"], 0, "--learning_rate FLOAT (at least 0)"),
    (["demo", "-h"], 0, "--workdir TEXT"),
    (["pretrain"], 2, "pretrain needs --workdir, --corpus, --passages, --index"),
    (["pretrain", "--workdir=a", "--lerning_rate=1"], 2, "did you mean --learning_rate?"),
    (["pretrain", "--workdir", "a", "--length=1"], 2, "no flag is named --length"),
    (["finetune", "--learning_rate=much"], 2, "'much' is not FLOAT"),
    (["evaluate", "--batch_size=0"], 2, "batch_size"),
    (["kb", "train", "--nosuch"], 2, "no flag is named --nosuch"),
    (["launch_local", "--joint=3"], 2, "no flag is named --joint"),
  ],
)
def test_help_and_wrong_flags_take_two_seconds_at_most(words, code, shown):
  ran = _run(RUNS, *words)
  assert (ran.returncode, shown in ran.stdout + ran.stderr) == (code, True), ran.stdout + ran.stderr

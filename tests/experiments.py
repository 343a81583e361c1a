"""The experiments in gin/, as their jobs get them."""

import pathlib
import re

import gin

from realm_jax import main
from realm_jax.command_line import configuration

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXPERIMENTS = sorted((ROOT / "gin" / "experiments").glob("*.gin"))


def head_of(file):
  """Returns the header of an experiment, a comment."""
  return file.read_text("utf-8").partition("\nfrom __gin__")[0]


def jobs_of(file):
  """Returns the jobs in the header of an experiment."""
  head = head_of(file).replace("\\\n#", " ")
  named = re.findall(rf"realm (\S+) [^\n]*{re.escape(file.name)}", head)
  assert named, f"the head of {file.name} names no job that takes it"
  return {name: main.find(name) for name in dict.fromkeys(named)}


def settings_of(job, file, bindings=()):
  """Returns the keywords that a job gets from an experiment."""
  configuration.configure(job, gin_files=[file], bindings=bindings, values={})
  return gin.get_bindings(job)


def begins(part, job, values, head):
  """Returns whether a new run of a job takes a part of its parameters from a checkpoint."""
  command = re.search(rf"realm {job} [^\n]*", head.replace("\\\n#", " "))
  flagged = re.findall(r"--start=(\S+)", command.group() if command else "")
  return any(_has(part, start) for start in flagged or values.get("start") or ())


def _has(part, start):
  directory, _, named = start.partition(":")
  return named == part if named else part == "dual_encoder" or "/ict/" not in directory

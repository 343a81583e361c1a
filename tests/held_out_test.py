"""No published recipe learns from documents or questions that its evaluations hold out."""

import pathlib
import re
import shlex
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
LEARN = (
  "prepare_corpus",  # with --vocab_size
  "train_retriever",
  "pretrain",
  "pretrain_mlm",
  "finetune",
)
EVALUATE = ("eval_corpus", "dev_questions")  # what these jobs only measure themselves on
WRITTEN = ("output", "workdir", "index")
_BINDING = re.compile(r"^(?:[\w.]+/)?(?P<name>[\w.]+) = (?P<value>.*)$", re.MULTILINE)
_INCLUDE = re.compile(r'^include "(.+)"$', re.MULTILINE)


@pytest.fixture(scope="module")
def table():
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "benchmarks")
    import reproduce

    yield reproduce.read_table()
    patch.delitem(sys.modules, "reproduce")


def bindings(path):
  """Returns the bindings of a gin file and those that it includes, the last of each name."""
  content = (ROOT / path).read_text()
  found = {}
  for included in _INCLUDE.findall(content):
    found |= bindings(included)
  return found | {m["name"]: m["value"] for m in _BINDING.finditer(content)}


def arguments(command):
  """Returns the job of a command, and its arguments by name, those of gin files included."""
  _, job, *flags = shlex.split(command)
  given = [tuple(flag.removeprefix("--").split("=", 1)) for flag in flags]
  bound = {}
  for name, value in given:
    bound |= bindings(value) if name == "gin_file" else {}
  own = {
    name: value.strip("\"'") for name, value in bound.items() if name.startswith(f"{job}.{job}.")
  }
  flags = {name.removeprefix("gin."): value.strip("\"'") for name, value in given}
  return job, {name.removeprefix(f"{job}.{job}."): value for name, value in (own | flags).items()}


def leaks(commands):
  """Returns what learning jobs read although it is held out, as `(job, argument, path)`."""
  held_out, found = set(), []

  def is_held_out(value):
    paths = [path.split("=")[-1] for path in value.split(",")]
    return any(f"{path}/".startswith(f"{out}/") for path in paths for out in held_out)

  asked = [
    path.split("=")[-1]
    for job, given in map(arguments, commands)
    if job == "evaluate"
    for path in given["questions"].split(",")
  ]
  for job, given in map(arguments, commands):
    read = {name: value for name, value in given.items() if name not in WRITTEN}
    if job in ("train_retriever", "pretrain", "finetune", "evaluate"):
      read |= {"index": given.get("index", "")}
    if job == "benchmarks/split_documents.py":
      if "held_out" in given or "held_out_ids" in given:
        held_out |= {f"{given['output']}/{name}.jsonl" for name in ("held_out", "knowledge")}
    elif job in LEARN and (job != "prepare_corpus" or "vocab_size" in given):
      found += [
        (job, name, value)
        for name, value in read.items()
        if name not in EVALUATE and (is_held_out(value) or value in asked)
      ]
    elif job != "evaluate" and any(map(is_held_out, read.values())):
      held_out.add(given["index" if job == "build_index" else "output"])
  return found


def chains(table):
  for name in table.results:
    yield name, [command for part in table.chain(name) for command in part.commands]


def test_recipes_learn_from_nothing_that_is_held_out(table):
  assert {name: found for name, commands in chains(table) if (found := leaks(commands))} == {}


def test_what_is_held_out_is_found():
  commands = [
    "realm benchmarks/split_documents.py --inputs=a --output=documents --held_out=0.02",
    "realm prepare_corpus --input=documents/training.jsonl --output=training --vocab_size=100",
    "realm prepare_corpus --input=documents/knowledge.jsonl --output=knowledge",
    "realm pretrain --gin_file=gin/experiments/tiny.gin --corpus=training --index=index",
  ]
  assert leaks(commands) == []
  commands[-1] = commands[-1].replace("--corpus=training", "--corpus=knowledge")
  assert leaks(commands) == [("pretrain", "corpus", "knowledge")]

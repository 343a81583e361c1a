"""The commands in the headers of gin/experiments and in the README, as they are written.

They run one after another in a folder with the files that they name, on copies of gin/ in which
sizes alone are changed.
"""

import contextlib
import functools
import gzip
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import flax.linen as nn
import flax.traverse_util
import jax
import pytest

from realm_jax import main
from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.formats import huggingface_files
from realm_jax.jobs.demonstration import corpora
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.text import tokenization
from realm_jax.training.recipes.pretraining import ModelConfig
from tests.experiments import ROOT, head_of
from tests.worlds import make_corpora

pytestmark = pytest.mark.timeout(900)

# Files whose headers run one after another, and what is removed between them.
RECIPES = {
  "tiny": ["tiny.gin"],
  "simple_wikipedia": ["simple_wikipedia.gin"],
  "squad": ["finetune_squad_open.gin"],
  "reading": ["reading_mlm.gin", "reading_own.gin", "reading.gin"],
  "almanac": ["demo.gin", "finetune_almanac.gin"],
  "ablation": ["ablation.gin", "ablation.sweep"],
  "wikipedia": [
    *("realm_wikipedia_v3.gin", "finetune_nq.gin", "ROOT/run", "ROOT/index", "realm_news.gin"),
  ],
}
# What the header of another file becomes that of one above by.
ALIKE = {
  **{f"realm_wikipedia_{chip}.gin": {chip: "v3"} for chip in ("v4", "v5e", "v6e")},
  "finetune_wq.gin": {"_wq": "_nq", "/wq": "/nq", "/webquestions": "/nq"},
  "finetune_ct.gin": {"_ct": "_nq", "/ct": "/nq", "/curatedtrec": "/nq"},
}
# These need what this machine lacks; tests/gin and tests/t5x_adapter read their configurations.
SKIPPED = {"realm plan": "libtpu", "python -m t5x.train": "t5x"}

SIZES = {
  name: int(size)
  for name, size in re.findall(
    r"(\w+)=(\d+)",
    """NUM_STEPS=2 FINETUNING_STEPS=2 num_steps=2 checkpoint_every=1 log_every=1 eval_every=1
    eval_steps=1 max_dev_questions=4 max_staleness_steps=1 warmup_steps=0 accumulate_steps=1
    vocab_size=8192 hidden_size=16 num_layers=1 num_heads=2 mlp_size=32 max_length=512
    projection_size=16 span_hidden_size=8 batch_size=8 tokens_per_batch=4096 beam_size=20
    query_length=32 max_masks=3 passage_length=32 joint_length=64""",
  )
}
_SIZE = re.compile(rf"^((?:[\w/.]*\.)?({'|'.join(SIZES)}) = )[^%\n]*$", re.MULTILINE)
# What the files leave as BERT-base has it.
UNSET = {
  "models/bert.BertConfig": "vocab_size hidden_size num_layers num_heads mlp_size max_length",
  "models/dual_encoder.DualEncoderConfig": "projection_size",
  "retrieval/retriever.RetrievalConfig": "passage_length joint_length",
  "training.recipes/examples.MaskedQueryData": "query_length max_masks",
  "training.recipes/examples.PairData": "query_length passage_length",
}


def commands(text):
  """Returns the commands of a header: what is indented, without line ends that are escaped."""
  lines = "\n".join(re.findall(r"^# {3,}(.*)", text, re.MULTILINE))
  return [line.replace(" &", "") for line in lines.replace("\\\n", " ").splitlines()]


def of_readme():
  text = (ROOT / "README.md").read_text("utf-8")
  block = text.partition("**Train REALM**")[2].partition("```\n")[2].partition("```")[0]
  return block.replace("\\\n", " ").splitlines()


def is_skipped(command):
  """Returns whether a command needs what is missing here."""
  needed = [module for beginning, module in SKIPPED.items() if command.startswith(beginning)]
  return any(importlib.util.find_spec(module) is None for module in needed)


def words(command):
  return shlex.split(command, comments=True)


def copy_gin(folder):
  """Copies gin/ with other sizes, also where a file leaves them as they are."""
  begun = "from __gin__ import dynamic_registration"
  defaults = [begun]
  for place, fields in UNSET.items():
    room, _, name = place.partition("/")
    defaults.append(f"from realm_jax.{room} import {name.partition('.')[0]}")
    defaults += [f"{name}.{field} = {SIZES[field]}" for field in fields.split()]
  for file in ROOT.glob("gin/*/*.*"):
    text = _SIZE.sub(lambda found: f"{found[1]}{SIZES[found[2]]}", file.read_text("utf-8"))
    if file.name in ("realm.gin", "reading.gin") and file.parent.name == "jobs":
      text = text.replace(begun, "\n".join(defaults))
    elif file.suffix == ".sweep":  # one of its rows, which needs no pre-training, with one seed
      head, *rows = re.split(r"(?=\n\[list)", re.sub(r"SEED = .*", "SEED = [0]", text))
      text = head + next(row for row in rows if row.startswith("\n[list.baseline]"))
    copy = folder / file.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text, "utf-8")


def write_bert(folder, *, vocabulary):
  """Writes a small BERT with random weights, and as a sentence encoder, like MiniLM."""
  bert = BertConfig(**{k: v for k, v in SIZES.items() if k in BertConfig.__dataclass_fields__})
  tokenizer = tokenization.load(str(vocabulary))
  encoder = DualEncoderConfig(bert=bert, pooling="mean", output="unit_length", projection_size=16)
  model = ModelConfig(dual_encoder=encoder, knowledge_augmented_encoder=bert).make()
  init = jax.jit(functools.partial(saved_models.init_pretraining_model, model))
  params = nn.unbox(init(jax.random.key(0)))
  tower, reader = params["dual_encoder"]["tower"], params["knowledge_augmented_encoder"]
  flat = lambda tree: flax.traverse_util.flatten_dict(jax.device_get(tree), sep="/")  # noqa: E731
  huggingface_files.write_masked_lm(
    str(folder / "BERT"), flat(reader), config=bert, tokenizer=tokenizer
  )
  for name in ("MINILM", "all-MiniLM-L6-v2"):
    huggingface_files.write_sentence_encoder(
      str(folder / name), flat(tower), config=encoder, tokenizer=tokenizer, max_length=256
    )


def squad(questions):
  """Returns questions as SQuAD's files have them."""
  asked = [{**q, "answers": [{"text": q["answer"][0], "answer_start": 0}]} for q in questions]
  paragraphs = [{"context": q["passage"], "qas": [q]} for q in asked]
  return json.dumps({"data": [{"title": "almanac", "paragraphs": paragraphs}]})


def read_lines(path):
  return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
  """A folder with all that the headers name."""
  folder, made = (tmp_path_factory.mktemp(name) for name in ("recipes", "made"))
  make_corpora(made)
  documents = (made / "almanac" / "documents.jsonl").read_bytes()
  asked = read_lines(made / "almanac" / "training_questions.jsonl")
  copy_gin(folder)
  write_bert(folder, vocabulary=made / "vocabulary")
  for name in ("realm_jax", "benchmarks", "launch"):
    (folder / name).symlink_to(ROOT / name)
  for name in ("corpus", "TEXT", "ROOT"):
    (folder / name).mkdir()
  (folder / "TEXT" / "documents.jsonl").write_bytes(documents)
  for name in ("enwiki.jsonl", "training.jsonl", "held_out.jsonl", "passages.jsonl"):
    (folder / name).write_bytes(documents)
  for name in ("passages.jsonl.gz", "corpus/documents.jsonl.gz"):
    (folder / name).write_bytes(gzip.compress(documents))
  for name, questions in (("train", asked[20:]), ("dev", asked[:20])):
    (folder / f"{name}-v1.1.json").write_text(squad(questions))
  (folder / "data" / "nq").mkdir(parents=True)
  for part, questions in (("train", asked[20:]), ("dev", asked[:10]), ("test", asked[10:20])):
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    (folder / "data" / "nq" / f"{part}.jsonl").write_text(lines)
  shutil.copytree(made / "training", folder / "ROOT" / "news")
  return folder


@contextlib.contextmanager
def beside(command):
  """Runs a command as a process of its own, which has to succeed as well."""
  started = [sys.executable, "-m", "realm_jax.main", *words(command)[1:]]
  with subprocess.Popen(started, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
    try:
      yield
      assert process.wait(timeout=120) == 0, command
    finally:
      process.kill()


def run(command, monkeypatch):
  """Runs a command of ours in this process, any other in a shell."""
  ours = words(command)
  while "=" in ours[0]:
    monkeypatch.setenv(*ours.pop(0).split("=", 1))
  if ours[0] == "realm":
    assert main.main(ours[1:]) == 0, command
  else:
    subprocess.run(command, shell=True, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_commands_of_a_recipe_run_as_they_are_written(recipe, files, tmp_path, monkeypatch):
  folder = tmp_path / "run"
  shutil.copytree(files, folder, symlinks=True)
  monkeypatch.chdir(folder)
  monkeypatch.setitem(corpora.make_corpora.__kwdefaults__, "num_invented_entities", 150)
  for name in RECIPES[recipe]:
    if not name.endswith((".gin", ".sweep")):
      shutil.rmtree(name)
      continue
    head = head_of(ROOT / "gin" / "experiments" / name)
    written = [c for c in commands(head) if not is_skipped(c)]
    assert written, name
    together = written[-2:] if re.search(r"run\s+(#\s+)?side by side", head) else []
    for command in written[: len(written) - len(together)]:
      run(command, monkeypatch)
    if together:
      with beside(together[0]):
        run(together[1], monkeypatch)


def test_every_header_is_run_or_is_like_one_that_is():
  run_here = {name for names in RECIPES.values() for name in names if "/" not in name}
  found = {file.name for file in ROOT.glob("gin/experiments/*.*")}
  assert found == run_here | ALIKE.keys() and not run_here & ALIKE.keys()
  headers = {name: commands(head_of(ROOT / "gin" / "experiments" / name)) for name in found}
  ran = [headers[name] for name in run_here]
  for name, changes in ALIKE.items():
    text = "\n".join(headers[name])
    for old, new in changes.items():
      text = text.replace(old, new)
    assert text.splitlines() in ran, name


def test_the_readme_trains_as_the_recipe_says():
  file = ROOT / "gin" / "experiments" / "simple_wikipedia.gin"
  written = [words(c) for c in of_readme()]
  assert written == [
    [w.replace("--input=TEXT", "--input=corpus/*.jsonl.gz") for w in words(c)]
    for c in commands(head_of(file))
    if "realm plan" not in c
  ]

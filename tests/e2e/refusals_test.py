"""What a person gets wrong ends, through the door, in one clear line, and nothing is lost."""

import functools
import gzip
import hashlib
import itertools
import os
import pathlib
import re
import shutil

import pytest

from realm_jax import main
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.vocabulary import VocabularyConfig
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus

pytestmark = pytest.mark.timeout(300)

_MASKED = '{"text": "Rome is it.", "spans": [[0, 4]], "answer": "Rome"}\n'
_FILES = {
  "nothing.jsonl": "",
  "plain.txt": "it is as it was\n",
  "plain.jsonl": '{"id": "1", "title": "it", "text": "it is as it was. so it was."}\n',
  "good.jsonl": '{"id": "1", "title": "Oslo", "text": "Oslo is the capital of Norway."}\n',
  "slow.jsonl": f'{{"id": "1", "text": "The wing of {"a" * 60}, and so on. Well!"}}\n',
  "table.jsonl": "id,title,text\n1,Oslo,far\n",
  "numbers.jsonl": '{"text": 5}\n',
  "picture.png": "",
  "unanswered.jsonl": '{"question": "where is it", "answer": []}\n',
  "bad_regex.jsonl": '{"question": "where", "answer": ["("], "regex": true}\n',
  "slow_regex.jsonl": '{"question": "which wing", "answer": [".*(a|aa)+[.]"], "regex": true}\n',
  "fuzzy.jsonl": '{"question": "where", "answer": ["a{e<}"], "regex": true}\n',
  "elsewhere_questions.jsonl": '{"question": "where is it", "answer": ["zqxj vwzq"]}\n',
  "masked.jsonl": _MASKED,
  "mixed.jsonl": _MASKED + '{"question": "where is it", "answer": ["Oslo"]}\n',
  "queries.jsonl": '{"_id": "q1", "text": "what is the city"}\n',
  "qrels.tsv": "q1\tnowhere\t1\n",
  "other.tsv": "q9\tnowhere\t1\n",
  "run.trec": "q1 Q0 nowhere 1 2.0 x\n",
  "broken.gin": "from __gin__ import dynamic_registration\nx = = 3\n",
  "unknown.gin": "from __gin__ import dynamic_registration\nimport nosuchmodule\n",
  "unused.gin": "TYPO = 3\n",
  "unset.gin": "from __gin__ import dynamic_registration\nfrom realm_jax.models import bert\n"
  "bert.BertConfig.num_layers = %UNSET\n",
}


def _table():
  """Yields the job and its arguments, and the complaint, of each line of refusals.txt."""
  table = pathlib.Path(__file__).with_name("refusals.txt").read_text()
  usual = [""]
  for line in table.splitlines():
    if not line or line.startswith("#"):
      continue
    if not line.startswith(" "):
      usual = line.split()
      continue
    given, complaint = line.strip().split(" -> ")
    alone = given.startswith("alone")
    yield [*(usual[:1] if alone else usual), *given.removeprefix("alone").split()], complaint


_ALONE = [job.split() for job in main.JOBS if job not in ("check", "examples")]
ROWS = [*_table(), *((words, "needs --|--checkpoints|give a query") for words in _ALONE)]


@pytest.fixture(scope="module")
def elsewhere(world, tmp_path_factory):
  """Files and corpora that fit nothing else."""
  root = tmp_path_factory.mktemp("elsewhere")
  documents = str(world / "almanac" / "documents.jsonl")
  for name, content in _FILES.items():
    (root / name).write_text(content)
  with open(world / "almanac" / "training_questions.jsonl", encoding="utf-8") as file:
    asked = list(itertools.islice(file, 20))
  (root / "questions.jsonl").write_text("".join(asked))
  (root / "few.jsonl").write_text("".join(asked[:3]))
  (root / "latin.txt").write_bytes(b"caf\xe9\n\xe9")
  (root / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 1000)[:40])
  (root / "broken_link.jsonl").symlink_to("absent.jsonl")
  (root / "empty").mkdir()
  shutil.copytree(world / "passages", root / "damaged")
  os.truncate(next((root / "damaged").glob("*.bin")), 3)
  for source, vocabulary, name in (
    (documents, root / "vocabulary", "other"),
    (root / "plain.jsonl", world / "vocabulary", "spanless"),
    (root / "slow.jsonl", world / "vocabulary", "slow"),
  ):
    prepare_corpus(
      input=str(source),
      output=str(root / name),
      vocabulary=str(vocabulary),
      learning=VocabularyConfig(vocab_size=1024),
      chunking=ChunkingConfig(max_passage_length=64),
      num_shards=1,
    )
  return root


def _digests(*roots):
  files = (pathlib.Path(top, name) for r in roots for top, _, names in os.walk(r) for name in names)
  found = ((file, file.stat()) for file in files if file.is_file())
  return {file: _digest(file, stat.st_ino, stat.st_mtime_ns) for file, stat in found}


@functools.cache
def _digest(file, *written):
  """Reads a file once for every time it was written."""
  del written
  return hashlib.sha256(file.read_bytes()).digest()


@pytest.fixture(scope="module")
def before(world, elsewhere):
  """What lies there before the first of these command lines."""
  return _digests(world, elsewhere)


@pytest.mark.parametrize(("row", "complaint"), ROWS, ids=[" ".join(row) for row, _ in ROWS])
def test_it_ends_in_one_line_and_nothing_is_lost(
  world, elsewhere, before, tmp_path, capfd, row, complaint
):
  arguments = [part.replace("{w}", f"{world}").replace("{e}", f"{elsewhere}") for part in row]
  assert main.main([part.replace("{o}", f"{tmp_path}") for part in arguments]) in (1, 2)
  shown = capfd.readouterr().err
  (line,) = [said for said in shown.splitlines() if said.startswith("realm")]
  assert shown.endswith(f"{line}\n") and "Traceback" not in shown
  assert re.search(complaint, line), line
  after = _digests(world, elsewhere)
  assert {path: after.get(path) for path in before} == before

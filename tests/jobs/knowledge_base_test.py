"""Making, changing and searching a knowledge base from the command line."""

import os
import subprocess
import sys

import pytest

from realm_jax import main
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase

# A page without text.
_SCAN = (
  b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>"
  b"endobj 3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj trailer<</Root 1 0 R>>"
)


@pytest.fixture
def realm(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "docs").mkdir()
  (tmp_path / "docs" / "moss.md").write_text("# Moss\n\nMoss grows in the shade.\n")
  (tmp_path / "docs" / "fern.txt").write_text("Fern\n\nFerns have no seeds.\n")
  (tmp_path / "docs" / "scan.png").write_text("no text")
  (tmp_path / "docs" / "empty.txt").write_text("")

  def run(*words):
    code = main.main(words)
    out, err = capsys.readouterr()
    return code, out + err

  return run


@pytest.mark.parametrize(
  ("name", "content", "reason"),
  [
    ("rows.jsonl", b'{"id": "elm"\n{"text": 3}\n', "broken records: texts/rows.jsonl (not JSON"),
    ("rows.jsonl", b'{"text": ""}\n', "records without text: texts/rows.jsonl:1"),
    ("empty.txt", b"", "records without text: texts/empty.txt (the file is empty)"),
    ("head.csv", b"id,text\n", "records without text: texts/head.csv (the file is empty)"),
    ("rows.jsonl.gz", b"\x1f\x8b\x08", "unreadable files: texts/rows.jsonl.gz ("),
    ("page.html", b"<p></p>", "records without text: texts/page.html"),
    ("scan.pdf", _SCAN, "records without text: texts/scan.pdf (no text on its pages (1);"),
    ("scan.png", b"PNG", "texts/scan.png"),
    ("sub/.hidden", b"text", "no file matches"),
  ],
)
def test_texts_of_which_nothing_can_be_read_are_refused(realm, tmp_path, name, content, reason):
  assert realm("kb", "create", "kb", "docs/moss.md")[0] == 0
  (file := tmp_path / "texts" / name).parent.mkdir(parents=True)
  file.write_bytes(content)
  for words in (["create", "new"], ["add", "kb"], ["add", "--update", "kb"], ["sync", "kb"]):
    code, said = realm("kb", *words, "texts")
    assert code == 1 and reason in said and len(said.splitlines()) == 1, words
  assert not (tmp_path / "new").exists()
  assert "documents=1," in repr(KnowledgeBase(tmp_path / "kb"))
  (tmp_path / "texts" / "fern.txt").write_text("Fern\n\nFerns have no seeds.\n")
  code, said = realm("kb", "sync", "kb", "texts")
  assert code == 0 and "1 added" in said


def test_of_a_folder_that_is_only_bad_now_what_has_gone_is_deleted(realm, tmp_path):
  (tmp_path / "docs" / "bad.jsonl").write_text("{\n")
  assert realm("kb", "create", "kb", "docs")[0] == 0
  (tmp_path / "docs" / "fern.txt").unlink()
  (tmp_path / "docs" / "moss.md").unlink()
  code, said = realm("kb", "sync", "kb", "docs")
  assert code == 0 and "2 deleted" in said and "bad.jsonl" in said
  code, said = realm("kb", "sync", "kb", "docs")
  assert code == 1 and "nothing could be read" in said, "though nothing of it has changed"


def test_a_folder_becomes_searchable_and_follows_its_files(realm, tmp_path):
  code, said = realm("kb", "create", "kb", "docs")
  assert code == 0 and "2 added" in said
  assert "scan.png" in said and "empty.txt" in said, "what was skipped"
  suggested = [
    " ".join(line.split()[1:3]) for line in said.splitlines() if line.startswith("  realm ")
  ]
  assert len(suggested) == 3 and {*suggested} <= main.JOBS.keys()
  assert "moss.md" in realm("kb", "search", "kb", "--k=1", "where does moss grow")[1]

  (tmp_path / "asked.jsonl").write_text('{"question": "what grows in shade", "answer": "moss"}')
  assert "recall@5" in realm("kb", "evaluate", "kb", "asked.jsonl")[1]

  (tmp_path / "docs" / "moss.md").write_text("# Moss\n\nMoss likes water.\n")
  (tmp_path / "docs" / "fern.txt").unlink()
  code, said = realm("kb", "add", "kb", "docs")
  assert code == 1 and "moss.md" in said, "another content"
  assert "water" not in realm("kb", "search", "kb", "moss")[1]
  code, said = realm("kb", "sync", "kb", "docs")
  assert code == 0 and "1 updated" in said and "1 deleted" in said
  assert "water" in realm("kb", "search", "kb", "moss")[1]

  (tmp_path / "birds.jsonl").write_text('{"id": "owl", "text": "An owl.", "year": 1958}\n')
  (tmp_path / "cats.jsonl").write_text('{"id": "lynx", "text": "A lynx.", "year": 1960}\n')
  assert realm("kb", "add", "kb", "birds.jsonl", "cats.jsonl")[0] == 0
  assert "owl" in realm("kb", "search", "kb", "an owl or lynx", '--where={"year": {"lt": 1960}}')[1]
  assert (
    "lynx" not in realm("kb", "search", "kb", "an owl or lynx", '--where={"year": {"lt": 1960}}')[1]
  )
  assert "2 deleted" in realm("kb", "delete", "kb", "owl", "lynx")[1]


def test_a_search_imports_nothing_of_networks_and_buckets(realm):
  assert realm("kb", "create", "kb", "docs")[0] == 0
  code = (
    "import sys; from realm_jax import main; code = main.main(['kb', 'search', 'kb', 'moss']);"
    "loaded = {'asyncio', 'etils.epath', 'fsspec', 'http.client', 'jax', 'ssl', 'unittest'};"
    "loaded |= {'scipy', 'tensorflow', 'tensorstore'};"
    "assert not loaded & sys.modules.keys(), loaded & sys.modules.keys(); sys.exit(code)"
  )
  run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
  assert run.returncode == 0 and "moss.md" in run.stdout, run.stderr


def test_a_query_may_begin_like_a_flag_and_is_suggested_so(realm, tmp_path):
  (tmp_path / "flags.txt").write_text("--max_size\n\nThe flag --max_size sets the size.\n")
  code, said = realm("kb", "create", "kb", "flags.txt")
  assert code == 0 and "  realm kb search kb -- --max_size\n" in said
  for words in (["--", "--max_size"], ["--max_size of all"], ["--question=--max_size"]):
    assert "flags.txt" in realm("kb", "search", "kb", *words)[1]
  assert realm("kb", "search", "kb", "--k=1", "--", "--help")[0] == 0


def test_a_name_that_tells_nothing_is_not_the_suggested_query(realm, tmp_path):
  (tmp_path / "999.txt").write_text(f"Wings flutter in {'steep ' * 50}dives.\nMore.")
  assert "  realm kb search kb 'Wings flutter in " in realm("kb", "create", "kb", "999.txt")[1]


def test_a_name_that_is_not_utf8_is_printed_with_escapes(realm, tmp_path):
  with open(os.fsencode(tmp_path) + b"/docs/f\xe4rn.txt", "w") as file:
    file.write("Fern\n\nFerns have no seeds.")
  code, said = realm("kb", "create", "kb", "docs")
  assert code == 0 and "3 added" in said
  assert "f\\xe4rn.txt" in realm("kb", "search", "kb", "ferns")[1]
  assert "3 unchanged" in realm("kb", "add", "kb", "docs", "--update")[1]


@pytest.mark.parametrize(
  ("words", "named"),
  [
    (["kb", "evaluate", "kb"], "--questions"),
    (["create", "kb", "docs"], "did you mean kb create?"),
    (["kb", "serch", "kb", "moss"], "did you mean kb search?"),
    (["kb", "evaluate", "kb", "docs", "--max_questions=3"], "max_questions"),
    (["kb", "serve", "kb", "--second_step=3"], "second_step"),
    (["kb", "train", "kb"], "no encoder"),
    (["kb", "ask", "kb", "what grows"], "no reader"),
    (["evaluate"], "--questions"),
    (["kb", "search", "absent", "moss"], "absent"),
    (["kb", "search", "docs/moss.md", "moss"], "is no knowledge base"),
    (["kb", "serve", "docs"], "is no knowledge base"),
    (["kb", "create", "docs"], "docs"),
    (["kb", "create", "new", "absent"], "absent"),
    (["kb", "create", "new", "docs", "--encoder=absent"], "absent"),
    (["kb", "search", "kb", "moss", "--where=year"], "year"),
    (["kb", "delete", "kb", "elm"], "elm"),
    (["kb", "add", "kb", "absent"], "absent"),
    (["kb", "add", "kb", "http://127.0.0.1/x.txt"], "not downloaded"),
    (["kb", "delete", "kb"], "ids"),
  ],
)
def test_a_mistake_ends_in_one_line(realm, tmp_path, words, named):
  realm("kb", "create", "kb", "docs")
  code, said = realm(*words)
  assert code != 0 and named in said and said.count("\n") == 1
  assert not (tmp_path / "new").exists()


def test_wrong_questions_are_refused_before_anything_computes(realm, tmp_path):
  assert realm("kb", "create", "kb", "docs")[0] == 0
  wrong = {
    "absent.jsonl": ("", "no questions at"),
    "csv.jsonl": ("question,answer\n", "line 1 is not JSON"),
    "unanswered.jsonl": ('{"question": "where"}\n', "unanswered.jsonl, line 1"),
    "few.jsonl": ('{"question": "where", "answer": "moss"}\n' * 150, "1 different questions are"),
  }
  for name, (text, _) in [*wrong.items()][1:]:
    (tmp_path / name).write_text(text)
  code = (
    "import sys, time; from realm_jax import main;"
    "codes = [main.main(['kb', 'train', 'kb', name]) for name in sys.argv[1:]];"
    "assert not {'jax', 'tensorflow', 'scipy'} & sys.modules.keys();"
    "assert time.process_time() < 2; sys.exit(codes != [1] * 4)"
  )
  program = [sys.executable, "-c", code, *wrong]
  run = subprocess.run(program, capture_output=True, text=True, check=False)
  told = run.stderr.splitlines()
  assert run.returncode == 0 and len(told) == 4, run.stderr
  assert all(part in line for line, (_, part) in zip(told, wrong.values(), strict=True)), told

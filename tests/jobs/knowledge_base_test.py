"""Making, changing and searching a knowledge base from the command line."""

import os

import pytest

from realm_jax import main


@pytest.fixture
def realm(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "docs").mkdir()
  (tmp_path / "docs" / "moss.md").write_text("# Moss\n\nMoss grows in the shade.\n")
  (tmp_path / "docs" / "fern.txt").write_text("Fern\n\nFerns have no seeds.\n")
  (tmp_path / "docs" / "scan.pdf").write_text("no text")
  (tmp_path / "docs" / "empty.txt").write_text("")

  def run(*words):
    code = main.main(words)
    out, err = capsys.readouterr()
    return code, out + err

  return run


def test_a_folder_becomes_searchable_and_follows_its_files(realm, tmp_path):
  code, said = realm("create", "kb", "docs")
  assert code == 0 and "2 added" in said
  assert "scan.pdf" in said and "empty.txt" in said, "what was skipped"
  suggested = [line.split()[1] for line in said.splitlines() if line.startswith("  realm ")]
  assert len(suggested) == 3 and {*suggested} <= main.JOBS.keys()
  assert "moss.md" in realm("search", "kb", "--k=1", "where does moss grow")[1]

  (tmp_path / "asked.jsonl").write_text('{"question": "what grows in shade", "answer": "moss"}')
  assert "recall@5" in realm("evaluate", "kb", "asked.jsonl")[1]

  (tmp_path / "docs" / "moss.md").write_text("# Moss\n\nMoss likes water.\n")
  (tmp_path / "docs" / "fern.txt").unlink()
  code, said = realm("add", "kb", "docs")
  assert code == 1 and "moss.md" in said, "another content"
  assert "water" not in realm("search", "kb", "moss")[1]
  code, said = realm("add", "kb", "docs", "--delete_missing")
  assert code == 0 and "1 updated" in said and "1 deleted" in said
  assert "water" in realm("search", "kb", "moss")[1]

  (tmp_path / "birds.jsonl").write_text('{"id": "owl", "text": "An owl.", "year": 1958}\n')
  (tmp_path / "cats.jsonl").write_text('{"id": "lynx", "text": "A lynx.", "year": 1960}\n')
  assert realm("add", "kb", "birds.jsonl", "cats.jsonl")[0] == 0
  assert "owl" in realm("search", "kb", "an owl or lynx", '--where={"year": {"lt": 1960}}')[1]
  assert "lynx" not in realm("search", "kb", "an owl or lynx", '--where={"year": {"lt": 1960}}')[1]
  assert "2 deleted" in realm("delete", "kb", "owl", "lynx")[1]


def test_a_query_may_begin_like_a_flag_and_is_suggested_so(realm, tmp_path):
  (tmp_path / "flags.txt").write_text("--max_size\n\nThe flag --max_size sets the size.\n")
  code, said = realm("create", "kb", "flags.txt")
  assert code == 0 and "  realm search kb -- --max_size\n" in said
  for words in (["--", "--max_size"], ["--max_size of all"], ["--question=--max_size"]):
    assert "flags.txt" in realm("search", "kb", *words)[1]
  assert realm("search", "kb", "--k=1", "--", "--help")[0] == 0


def test_a_name_that_tells_nothing_is_not_the_suggested_query(realm, tmp_path):
  (tmp_path / "999.txt").write_text(f"Wings flutter in {'steep ' * 50}dives.\nMore.")
  assert "  realm search kb 'Wings flutter in " in realm("create", "kb", "999.txt")[1]


def test_a_name_that_is_not_utf8_is_printed_with_escapes(realm, tmp_path):
  with open(os.fsencode(tmp_path) + b"/docs/f\xe4rn.txt", "w") as file:
    file.write("Fern\n\nFerns have no seeds.")
  code, said = realm("create", "kb", "docs")
  assert code == 0 and "3 added" in said
  assert "f\\xe4rn.txt" in realm("search", "kb", "ferns")[1]
  assert "3 unchanged" in realm("add", "kb", "docs", "--update")[1]


@pytest.mark.parametrize(
  ("words", "named"),
  [
    (["evaluate", "kb"], "questions.jsonl"),
    (["evaluate", "kb", "docs", "--max_questions=3"], "alone"),
    (["evaluate", "kb", "docs", "--poll_seconds=1"], "alone"),
    (["serve", "kb", "--second_step=3"], "alone"),
    (["serve", "kb", "--history=2"], "alone"),
    (["evaluate"], "--questions"),
    (["search", "absent", "moss"], "absent"),
    (["create", "docs"], "docs"),
    (["search", "kb", "moss", "--where=year"], "year"),
    (["delete", "kb", "elm"], "elm"),
    (["add", "kb", "absent"], "absent"),
    (["add", "kb", "http://127.0.0.1/x.txt"], "not downloaded"),
    (["delete", "kb"], "ids"),
  ],
)
def test_a_mistake_ends_in_one_line(realm, words, named):
  realm("create", "kb", "docs")
  code, said = realm(*words)
  assert code != 0 and named in said and said.count("\n") == 1

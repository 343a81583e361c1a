"""The documents: every command parses, every path exists, every line fits."""

import collections
import inspect
import pathlib
import re
import shlex
import sys

import gin
import pytest
import yaml

from realm_jax import main
from realm_jax.command_line import configuration, flags
from realm_jax.corpus import passage_store
from realm_jax.data import prepared_examples
from realm_jax.devices import processes
from realm_jax.index import generations
from realm_jax.index.words import postings
from realm_jax.jobs.answering import serve
from realm_jax.jobs.knowledge_base import servers
from realm_jax.knowledge_base.store import commits

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS += sorted((ROOT / "launch").rglob("*.md"))
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in DOCUMENTS}
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATH = re.compile(
  r"(?:docs|gin|tests|launch|tasks|benchmarks|realm_jax)/[\w./-]*\w\.(?:py|md|gin|sweep|png)"
)


def commands(program):
  """Returns the commands of a program in the documents, with their document, as lists of words."""
  found = []
  for document, text in TEXTS.items():
    lines = "\n".join(_FENCED.findall(text)).replace("\\\n", " ").splitlines()
    for line in [*lines, *re.findall(rf"`({program}\s[^`]+)`", _FENCED.sub("", text))]:
      if re.match(rf"{program}\s", line):
        words = shlex.split(line, comments=True)
        found.append((document, [word for word in words[1:] if word not in ("...", "&")]))
  return found


def reproductions():
  """Returns the commands of published results."""
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "benchmarks")
    import reproduce

    results = reproduce.read_table().results.values()
    patch.delitem(sys.modules, "reproduce")
  return [shlex.split(command)[1:] for result in results for command in result.commands]


JOBS = [
  (document, words)
  for document, words in commands("realm")
  if main.split(words)[0] in main.JOBS or words[0].endswith(".py")
]
JOBS += [("benchmarks/reproductions.toml", words) for words in reproductions()]


@pytest.fixture
def nothing_runs(monkeypatch):
  monkeypatch.chdir(ROOT)
  monkeypatch.setattr(configuration, "run", lambda *_: 0)
  monkeypatch.setattr(flags, "call", lambda *_: 0)
  monkeypatch.setattr(flags, "refuse_missing", lambda *_: None)
  monkeypatch.setattr(processes, "join", lambda **_: None)
  yield
  gin.clear_config()


@pytest.mark.parametrize(("document", "words"), JOBS, ids=[" ".join(words) for _, words in JOBS])
def test_every_command_is_one_that_its_job_knows(document, words, nothing_runs, capsys):
  assert main.main(words) == 0, f"{document}: {capsys.readouterr().err}"


def test_every_job_is_in_the_help_and_in_a_document(capsys):
  assert main.main(["--help"]) == 0
  listed = capsys.readouterr().out
  for job in main.JOBS:
    assert f"  {job} " in listed
    assert any(re.search(rf"\b{job}\b", text) for text in TEXTS.values()), job


def test_every_job_that_writes_locally_is_in_the_guide_to_object_stores():
  rejecting = {p.stem for p in ROOT.glob("realm_jax/jobs/*/*.py") if "check_local" in p.read_text()}
  (listed,) = re.findall(r"^- (.*?) write locally", TEXTS["docs/object_store.md"], re.M | re.S)
  assert set(re.findall(r"`(\w+)`", listed)) == rejecting


def test_flags_of_other_programs_are_in_their_source():
  found = commands("python")
  assert len(found) > 10
  for document, (script, *words) in found:
    if script != "-m":
      source = (ROOT / script).read_text("utf-8")
      for flag in re.findall(r"--(\w+)", " ".join(words)):
        assert re.search(rf"\b{flag}\b", source), f"{document}: {script} knows no --{flag}"


def test_a_port_is_that_of_one_guide_and_of_one_job():
  guides = collections.defaultdict(set)
  for document, text in TEXTS.items():
    for port, path in re.findall(r"127\.0\.0\.1:(\d+)(/v1)?", text):
      guides[port].add(path or document)  # servers of language models are in several
  assert {port: where for port, where in guides.items() if len(where) > 1} == {}
  for document, job in (
    ("docs/serving.md", servers.serve),
    ("docs/inspector.md", serve.serve),
  ):
    assert document in guides[str(inspect.signature(job).parameters["port"].default)]


@pytest.mark.parametrize("document", TEXTS)
def test_every_path_and_link_exists(document):
  links = re.findall(r"\]\((?!https?:)([^)#]+)", TEXTS[document])
  folder = (ROOT / document).parent
  missing = [path for path in _PATH.findall(TEXTS[document]) if not (ROOT / path).exists()]
  missing += [link for link in links if not (folder / link).exists()]
  assert missing == []


@pytest.mark.parametrize("file", sorted(ROOT.glob("gin/**/*.gin")), ids=lambda file: file.name)
def test_every_document_and_heading_that_a_gin_file_names_exists(file):
  comments = " ".join(" ".join(re.findall(r"#(.*)", file.read_text("utf-8"))).split())
  for path in _PATH.findall(comments):
    assert (ROOT / path).exists(), path
  for path, heading in re.findall(r"(docs/[\w/]+\.md), \"([^\"]+)\"", comments):
    assert re.search(rf"^#+ {re.escape(heading)}$", TEXTS[path], re.M), (path, heading)


@pytest.mark.parametrize("document", TEXTS)
def test_every_heading_that_is_linked_exists(document):
  for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", TEXTS[document]):
    file = (ROOT / document).parent / link if link else ROOT / document
    headings = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.M)
    slugs = {re.sub(r"[^\w\s-]", "", h).strip().lower().replace(" ", "-") for h in headings}
    assert anchor in slugs, (link, anchor)


def test_the_readme_lists_every_document():
  for document in TEXTS:
    if document.startswith("docs/"):
      assert f"({document})" in TEXTS["README.md"], document


def test_every_document_and_example_is_in_the_navigation_of_the_site():
  """`make docs` checks all links."""
  navigation = str(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
  examples = [f"examples/{file.name}.md" for file in (ROOT / "examples").glob("*.*")]
  assert [page for page in [*TEXTS, *examples] if f"'{page}'" not in navigation] == []


def test_the_changelog_names_the_formats_on_disk():
  numbers = {
    "corpora": passage_store.CORPUS.format,
    "prepared examples": prepared_examples.EXAMPLES.format,
    "generations of an index": generations.KIND.format,
    "postings": postings.FORMAT,
    "knowledge bases": commits._FORMAT,
  }
  wanted = "Formats on disk: " + ", ".join(f"{name} {number}" for name, number in numbers.items())
  assert f"{wanted}." in " ".join((ROOT / "CHANGELOG.md").read_text("utf-8").split())

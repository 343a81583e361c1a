"""No job replaces or removes what it did not write: for every job and every path that it writes."""

import os
import pathlib
import typing

import pytest

from realm_jax import main
from realm_jax.command_line import flags
from realm_jax.corpus.passage_store import CORPUS
from realm_jax.devices.directory_lock import WORKDIR
from realm_jax.foundations import array_folder, atomic_files, object_store, output_kinds
from realm_jax.foundations.output_kinds import DirectoryKind, FileKind
from realm_jax.index.generations import INDEX

GIN = pathlib.Path(__file__).parents[2] / "gin" / "experiments"
GIN_FILES = {"demo": "demo.gin"}

# Every keyword whose value may be a path, by its last name: a new one has to be sorted in here.
WRITTEN = {"output", "workdir"}
WRITTEN_BY = {("build_index", "index"), ("kb create", "path")}
READ = {
  *("input", "vocabulary", "train", "test", "corpus", "passages", "answerable_from"),
  *("checkpoints", "index", "source", "blocks", "titles", "embeddings", "examples", "eval_corpus"),
  *("questions", "start", "reader", "dev_questions", "config"),
  *("qrels", "predictions", "train_questions", "against"),
  *("target", "path", "texts", "encoder"),
}
NO_PATHS = {
  *("beam_options", "allow_changes", "frozen_parts", "best_metric", "builder_devices", "topology"),
  *("query", "address", "after", "generator", "generator_model", "host", "hosts", "language"),
  *("newer", "question", "ids", "edit_token", "passage_prompt", "query_prompt"),
}
UPLOAD = str(pathlib.Path(__file__).parents[2] / "launch" / "upload.py")
# A folder of its own within beam_parts is written and removed.
SHARED = {"beam_parts"}


def keywords(job):
  return flags.keywords(main.find(job))


def names(job):
  """Yields the keywords of a job that may be paths."""
  for keyword in flags.flatten(keywords(job)):
    of = typing.get_args(keyword.annotation) or (keyword.annotation,)
    if keyword.plain and (str in of or any(str in typing.get_args(part) for part in of)):
      yield keyword.name.rpartition(".")[2]


def is_written(job, name):
  return name in WRITTEN or (job, name) in WRITTEN_BY


ALL = [(job, name) for job in main.JOBS for name in names(job) if is_written(job, name)]


def test_every_path_of_every_job_is_known_to_be_read_or_written():
  found = {name for job in main.JOBS for name in names(job)}
  assert found == WRITTEN | READ | NO_PATHS | SHARED


def arguments(job, name, path):
  """Returns a command line that is right but for inputs that are missing."""
  given = {name: path}
  for keyword in keywords(job):
    if keyword.default is flags.REQUIRED and keyword.plain and keyword.name not in given:
      choices = typing.get_args(keyword.annotation)
      literal = typing.get_origin(keyword.annotation) is typing.Literal
      given[keyword.name] = (
        choices[0] if literal else "1" if keyword.annotation is int else "absent"
      )
  if job == "ask":
    given["questions"] = "absent"
  found = [f"--{keyword}={value}" for keyword, value in given.items()]
  return found + ([f"--gin_file={GIN / GIN_FILES[job]}"] if job in GIN_FILES else [])


def content(directory):
  return {
    path.relative_to(directory): path.is_file() and path.read_bytes()
    for path in pathlib.Path(directory).rglob("*")
  }


def refused(job, name, path, capfd):
  assert main.main([job, *arguments(job, name, path)]) == 1
  (line,) = [row for row in capfd.readouterr().err.splitlines() if row.startswith("realm")]
  assert path in line and "nothing there is replaced" in line, line


def strangers(job, name):
  """Yields what a user may have where a job would write; "file" instead of a directory."""
  yield "file"
  if name == "index":
    yield "7/thesis.txt"
  elif name == "workdir" and job not in ("demo", "check"):
    yield from ("checkpoints/model.pt", "metrics.jsonl", "best/thesis.txt")
  else:
    yield from ("precious/ckpt", "7/thesis.txt")


@pytest.mark.parametrize(
  ("job", "name", "stranger"), [(*one, stranger) for one in ALL for stranger in strangers(*one)]
)
def test_what_a_user_has_survives_and_is_refused_first(job, name, stranger, tmp_path, capfd):
  path = tmp_path / "mine"
  if stranger == "file":
    path.write_text("of years")
  else:
    (path / stranger).parent.mkdir(parents=True)
    (path / stranger).write_text("of years")
  before = content(tmp_path)
  refused(job, name, str(path), capfd)
  assert content(tmp_path) == before


@pytest.mark.parametrize(
  ("kind", "beside"),
  [
    (WORKDIR, ["passages/metadata.json", "ict/checkpoints/4/x", "vocabulary/vocab.txt", "thesis"]),
    (WORKDIR, ["checkpoints/4/_CHECKPOINT_METADATA", "checkpoints/4/state/x", "7/thesis.txt"]),
    (WORKDIR, ["launch_local_config.gin", "logs/x.log", "thesis.txt"]),
    (INDEX, ["thesis.txt", "checkpoints/4/x"]),
    (INDEX, ["3/arrays/folder.json", "3/arrays/shard/x.bin", "thesis.txt"]),
  ],
)
def test_a_job_works_beside_files_whose_names_it_does_not_write(kind, beside, tmp_path):
  for file in beside:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
  kind.check(tmp_path)


def test_an_upload_is_refused_where_other_objects_are(emulated_gcs, tmp_path, capfd):
  (tmp_path / "metadata.json").write_text("{}")
  for path in ("precious/ckpt", "mine/precious/ckpt"):
    object_store.absolute(f"gs://bucket/{path}").write_text("of years")
  for target in ("gs://bucket/precious", "gs://bucket/mine/"):
    assert main.main([UPLOAD, str(tmp_path), f"--output={target}"]) == 1
    assert target.rstrip("/") in capfd.readouterr().err
  upload = [UPLOAD, str(tmp_path), "--output=gs://bucket/copy"]
  assert main.main(upload) == 0
  (tmp_path / "metadata.json").rename(tmp_path / "metadata_2.json")
  assert main.main(upload) == 1
  assert object_store.listed("gs://bucket/copy").keys() == {"metadata.json"}
  (tmp_path / "metadata.json").write_text("{}")
  assert main.main(upload) == 0
  assert object_store.listed("gs://bucket/copy").keys() == {"metadata.json", "metadata_2.json"}
  assert {"mine/precious/ckpt", "precious/ckpt"} <= set(emulated_gcs.names())


KIND = DirectoryKind(
  name="a thing", files=("made.json", "part/*.bin", "all/"), marks=("made.json",)
)


@pytest.mark.parametrize(
  ("files", "accepted"),
  [
    ([], True),
    (["made.json", "part/0.bin", "all/of/it"], True),
    ([".x.unfinished.1/whatever"], True),
    (["part/0.bin"], False),
    (["made.json", "0.bin"], False),
    (["made.json", "part/of/0.bin"], False),
    (["made.json", "all"], False),
  ],
)
def test_a_directory_is_known_by_its_files(tmp_path, files, accepted):
  for file in files:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
  if accepted:
    KIND.check(tmp_path)
  else:
    with pytest.raises(ValueError, match="nothing there is replaced"):
      KIND.check(tmp_path)


def test_a_file_that_comes_while_a_job_works_survives(tmp_path):
  path = tmp_path / "corpus"
  with pytest.raises(ValueError, match="thesis"), atomic_files.new_directory(path, kind=CORPUS):
    path.mkdir()
    (path / "thesis.txt").write_text("of years")
  assert content(tmp_path) == {pathlib.Path("corpus"): False} | {
    pathlib.Path("corpus/thesis.txt"): b"of years"
  }


def test_a_file_is_known_by_its_beginning(tmp_path):
  kind = FileKind(name="a table", start=r"\[")
  path = tmp_path / "table.json"
  for text in ("[1]", "[2]"):
    atomic_files.write_text(path, text, kind=kind)
  path.write_text("mine")
  with pytest.raises(ValueError, match="is not a table"):
    atomic_files.write_text(path, "[3]", kind=kind)
  assert path.read_text() == "mine"


def test_a_pipe_where_a_job_writes_is_refused_and_not_waited_for(tmp_path):
  file = FileKind(name="lines", start="x")
  folder = array_folder.FolderKind(name="a world", kind="world", format=1)
  os.mkfifo(tmp_path / array_folder.FOLDER_FILE)
  for kind, path in ((file, tmp_path / array_folder.FOLDER_FILE), (folder, tmp_path)):
    with pytest.raises(ValueError, match="nothing there is replaced"):
      kind.check(path)


def test_a_folder_of_something_else_is_not_looked_through(monkeypatch):
  def files_below(path):
    yield "letter.txt"
    raise AssertionError("reads on")

  monkeypatch.setattr(output_kinds, "_files_below", files_below)
  with pytest.raises(ValueError, match="has letter.txt, which is no part of"):
    DirectoryKind(name="an index", files=("*.npy",)).check("home")

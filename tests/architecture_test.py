"""Imports follow the table in docs/architecture.md, and every library has one home."""

import ast
import collections
import fnmatch
import pathlib
import re

import pytest
import yaml

from realm_jax import main

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "realm_jax"

DOCUMENT = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def table(header):
  """Returns the rows of the document's table with this header, as lists of cells."""
  lines = DOCUMENT.partition(f"| {header} |")[2].partition("\n\n")[0].splitlines()[2:]
  return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def name(room):
  return room.removesuffix(".py").removesuffix("/")


# What each room may import beside itself and the foundations.
ARROWS = {name(room): imports.split() for room, _, imports in table("room | contents | may import")}
FOUNDATIONS = {name(file) for file, _ in table("foundation | contents")}

HOMES = {
  "apache_beam": ("corpus/beam_pipeline.py",),
  "Stemmer": ("text/stems.py",),
  "clu": ("t5x_adapter/",),
  "etils": ("foundations/object_store.py",),
  "faiss": ("index/vectors/faiss_searcher.py",),
  "fastapi": ("web/",),
  "fcntl": ("foundations/system.py",),
  "fsspec": ("foundations/object_store.py",),
  "google_crc32c": ("checkpoints/orbax_files.py",),
  "gin": ("command_line/configuration.py",),
  "ir_measures": ("evaluation/document_ranking.py",),
  "huggingface_hub": ("foundations/hub.py",),
  "http": ("knowledge_base/server_requests.py",),  # its client
  "icu4py": ("text/segmentation.py",),
  "jinja2": ("web/application.py",),
  "mcp": ("web/knowledge_base/mcp_server.py",),
  "msgpack": ("corpus/parts.py",),
  "orbax": ("index/generations.py", "checkpoints/orbax_files.py"),
  "py3langid": ("text/languages.py",),
  "pyarrow": ("corpus/formats/records.py",),
  "pypdfium2": ("corpus/formats/pdf_text.py",),
  "resource": ("foundations/bounded_process.py",),
  "safetensors": ("checkpoints/formats/huggingface_files.py",),
  "scann": ("index/vectors/scann_searcher.py",),
  "seqio": ("data/", "t5x_adapter/", "tasks/"),
  "sentence_transformers": ("knowledge_base/encoders/text_encoders.py",),
  "socket": ("web/listening.py",),
  "starlette": ("web/",),
  "t5x": ("t5x_adapter/",),
  "tensorboard": ("training/run/metric_writers.py",),
  "tensorflow": (
    "checkpoints/formats/",
    "corpus/tagged_examples.py",
    "data/",
    "t5x_adapter/",
    "tasks/",
    "text/",
  ),
  "tensorflow_datasets": ("data/", "tasks/"),
  "tensorflow_text": ("data/", "text/tokenization.py"),
  "tqdm": ("foundations/progress.py",),
  "tokenizers": ("text/",),
  "watchfiles": ("foundations/watching.py",),
}
# Each of them runs what it reads, or opens a port.
NOWHERE = ("cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "socketserver")
# Jobs meet only where one job runs others.
MEETINGS = "jobs/demonstration/"
MAX_LINES, MAX_VERB_LINES = 500, 120
MAX_PARAMETERS, MAX_FUNCTION_LINES = 12, 120


def source_files():
  """Yields every file with its path in the package, such as `index/vectors/searcher.py`."""
  for path in sorted(PACKAGE.rglob("*.py")):
    yield path.relative_to(PACKAGE).as_posix(), path


def imported_modules(source):
  """Yields the dotted name of every import, including those inside functions."""
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, "imports are absolute"
      yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(file, source):
  """Returns a line for every import that `file` may not have."""
  room = file.split("/")[0].removesuffix(".py")
  found = []
  for module in imported_modules(source):
    top, *rest = module.split(".")
    homes = HOMES.get(top)
    if homes and not any(file == home or file.startswith(home) for home in homes):
      found.append(f"{file} imports {top}, whose home is {' and '.join(homes)}")
    if top in NOWHERE:
      found.append(f"{file} imports {top}, which nothing may")
    if top != "realm_jax" or rest[0].startswith("__"):
      continue
    target = rest[0]
    if room == "jobs":
      is_job = any(f"{module}.".startswith(f"{job}.") for job in main.JOBS.values())
      allowed = target != "main" and (target != "jobs" or not is_job or file.startswith(MEETINGS))
    else:
      allowed = target == room or target in ARROWS.get(room, ())
      allowed = allowed or target == "foundations"
      allowed = allowed or (target in FOUNDATIONS and room not in (*FOUNDATIONS, "demo"))
    if not allowed:
      found.append(f"{file} imports {module}")
  return found


def imported_files():
  """Returns the files that each file imports, also inside functions and for types."""
  files = {path.with_suffix("").as_posix().replace("/", "."): path for _, path in source_files()}
  root = ROOT.as_posix().replace("/", ".") + "."
  files = {name.removeprefix(root).removesuffix(".__init__"): path for name, path in files.items()}
  arrows = {}
  for name, path in files.items():
    modules = imported_modules(path.read_text("utf-8"))
    found = {module if module in files else module.rpartition(".")[0] for module in modules}
    arrows[name] = (found & files.keys()) - {name}
  return arrows


def test_no_file_imports_itself_through_others():
  assert one_of_each()["circles of files"][0] == 0
  arrows = imported_files()
  while leaves := {name for name, behind in arrows.items() if not behind & arrows.keys()}:
    arrows = {name: behind for name, behind in arrows.items() if name not in leaves}
  above = {target for behind in arrows.values() for target in behind}
  assert not {name: behind & arrows.keys() for name, behind in arrows.items() if name in above}


# From the ground, such as `index/words` and `index/fusion`.
FLOORS = [name(floor) for floor, _ in table("room with floors, from the ground | contents")]


def test_no_floor_imports_a_higher_one():
  built = {file.rpartition("/")[0] for file, _ in source_files()}
  built |= {name(file) for file, _ in source_files()}
  assert not {*FLOORS} - built

  def floor(file):
    folder = "/".join(file.split(".")[1:3])
    return FLOORS.index(folder) if folder in FLOORS else len(FLOORS)

  arrows = imported_files()
  for room in {floor.split("/")[0] for floor in FLOORS}:
    inside = {file for file in arrows if file.startswith(f"realm_jax.{room}.")}
    for file in inside:
      for target in arrows[file] & inside:
        assert floor(target) <= floor(file), f"{file} imports {target}"


def test_the_frame_of_the_web_imports_no_page_and_no_page_another():
  def page(name):
    above, _, file = name.removeprefix("realm_jax.web").rpartition(".")
    return above or (f".{file}" if (PACKAGE / "web" / file).is_dir() else "")

  for name, behind in imported_files().items():
    for target in behind:
      if name.startswith("realm_jax.web.") and target.startswith("realm_jax.web."):
        assert page(target) in ("", page(name)), f"{name} imports {target}"


def test_a_room_holds_at_most_24_files():
  files = collections.Counter(path.parent for _, path in source_files() if path.stem[0] != "_")
  assert {str(room): number for room, number in files.items() if number > 24} == {}


def test_the_document_has_every_room():
  rooms = {file.split("/")[0].removesuffix(".py") for file, _ in source_files()}
  assert ARROWS.keys() | FOUNDATIONS == rooms


def test_imports_follow_the_arrows():
  found = [v for file, path in source_files() for v in violations(file, path.read_text("utf-8"))]
  assert found == []


@pytest.mark.parametrize(
  ("file", "source", "count"),
  [
    ("models/bert.py", "from realm_jax.devices import x\nfrom realm_jax.models import y", 0),
    ("models/bert.py", "def f():\n  import realm_jax.training.hooks", 1),
    ("index/vectors/searcher.py", "import scann", 1),
    ("index/vectors/scann_searcher.py", "from scann.ops import pybind", 0),
    ("demo/world.py", "from realm_jax.devices import datatypes", 1),
    ("jobs/training/pretrain.py", "from realm_jax.jobs.answering import evaluate", 1),
    ("jobs/demonstration/demo.py", "import gin\nfrom realm_jax import main", 2),
    ("index/generations.py", "import pickle", 1),
  ],
)
def test_the_walk_sees_what_is_forbidden(file, source, count):
  assert len(violations(file, source)) == count


def test_a_verb_fits_on_two_screens():
  for file, path in source_files():
    lines = len(path.read_text("utf-8").splitlines())
    assert not file.startswith("jobs/") or lines <= MAX_VERB_LINES, (
      f"{file} has {lines} lines: a service in it belongs where its readers look"
    )


def test_files_stay_small_and_are_named_by_their_subject():
  for file, path in source_files():
    lines = len(path.read_text("utf-8").splitlines())
    assert lines <= MAX_LINES, f"{file} has {lines} lines: it holds two subjects"
    assert "util" not in path.stem and path.stem not in ("helpers", "misc", "common"), file


def functions():
  """Yields name, number of parameters without `self`, and number of lines of every function."""
  for file, path in source_files():
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
      if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        parameters = sum(argument.arg not in ("self", "cls") for argument in arguments)
        yield f"{file}:{node.name}", parameters, node.end_lineno - node.lineno + 1


def test_functions_stay_small():
  names, parameters, lines = zip(*functions(), strict=True)
  for name, count, length in zip(names, parameters, lines, strict=True):
    assert count <= MAX_PARAMETERS, f"{name} has {count} parameters: group them"
    assert length <= MAX_FUNCTION_LINES, f"{name} has {length} lines: split it"
  assert sorted(parameters)[int(0.9 * len(names))] <= 4
  assert sorted(lines)[int(0.9 * len(names))] <= 40


def test_numpy_reads_no_pickles():
  for file, path in source_files():
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
      if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
        assert ast.literal_eval(node.value) is False, file


# Other files that libraries or users name, and what is gone when a process ends.
NO_CONTAINERS = {
  "data/input_pipeline.py": "the position of tf.data, a checkpoint of TensorFlow",
  "devices/processes.py": "messages between processes, in memory",
  "evaluation/answer_matching.py": "temporary files",
  "index/vectors/scann_searcher.py": "ScaNN's own files, in a temporary directory",
  "jobs/preparation/export_checkpoint.py": "for other programs",
  "checkpoints/importing.py": "of other programs",
}
OF_FILES = {"memmap", "open_memmap", "load", "save", "savez", "savez_compressed", "fromfile"}


def keeps_arrays(source):
  """Returns whether a file maps, reads or writes files of arrays with numpy."""
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Attribute):
      of_numpy = isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy", "format")
      if node.attr == "tofile" or (of_numpy and node.attr in OF_FILES):
        return True
  return False


def names_in(source, field):
  """Returns whether a file has a parameter or a field of this name."""
  return any(
    (isinstance(node, ast.arg) and node.arg == field)
    or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == field)
    for node in ast.walk(ast.parse(source))
  )


def adds_words_and_vectors(source):
  """Returns whether a file knows the weight of scores that it adds, other than by its name."""
  return any(
    isinstance(node, ast.Assign) and "DENSE_WEIGHT" in map(ast.unparse, node.targets)
    for node in ast.walk(ast.parse(source))
  )


def discounts_ranks(source):
  return "np.log2(" in source


def starts(source):
  """Returns whether a file defines a type of where a training starts."""
  return any(
    isinstance(node, ast.Assign) and re.fullmatch(r"Starts?", ast.unparse(node.targets[0]))
    for node in ast.walk(ast.parse(source))
  )


# What was typed, to be shown again.
TYPED = {"web/knowledge_base/forms.py"}
KINDS = {
  "containers of arrays": (keeps_arrays, NO_CONTAINERS.keys()),
  "tables of what a question": (lambda source: names_in(source, "min_answerable"), TYPED),
  "fusions of words": (adds_words_and_vectors, set()),
  "discounts of ranks": (discounts_ranks, set()),
  "names for where": (starts, set()),
}


def one_of_each():
  """Returns the rows of the document's table by their beginning: the number, and where."""
  rows = table("things of one kind | number | where")
  known = (*KINDS, "methods of", "circles of files", "required packages")
  found = {begins: row[1:] for row in rows for begins in known if row[0].startswith(begins)}
  assert len(found) == len(known) == len(rows), "each row has a test"
  return {begins: (int(number), where) for begins, (number, where) in found.items()}


@pytest.mark.parametrize("begins", KINDS)
def test_what_is_of_one_kind_is_in_one_file(begins):
  (number, where), (is_of_kind, others) = one_of_each()[begins], KINDS[begins]
  found = {file for file, path in source_files() if is_of_kind(path.read_text("utf-8"))}
  assert found - others == {where} and number == 1
  assert others <= found


def test_an_encoder_has_few_methods():
  number, where = one_of_each()["methods of"]
  (encoder,) = (
    node
    for node in ast.parse((PACKAGE / where).read_text("utf-8")).body
    if isinstance(node, ast.ClassDef) and node.name == "Encoder"
  )
  assert sum(isinstance(node, ast.FunctionDef) for node in encoder.body) == number


def test_what_searches_requires_few_packages():
  number, where = one_of_each()["required packages"]
  tree = ast.parse((ROOT / where).read_text("utf-8"))
  (required,) = (
    ast.literal_eval(node.value)
    for node in ast.walk(tree)
    if isinstance(node, ast.keyword) and node.arg == "install_requires"
  )
  assert len(required) == number


@pytest.mark.parametrize(
  ("source", "found"),
  [
    ("import numpy as np\nnp.load(path)", True),
    ("array.tofile(path)", True),
    ("numpy.memmap(path)", True),
    ("json.load(file)", False),
    ("np.frombuffer(content)", False),
  ],
)
def test_the_walk_sees_files_of_arrays(source, found):
  assert keeps_arrays(source) == found


def test_gin_files_do_not_shadow_the_library():
  assert list((ROOT / "gin").rglob("*.py")) == []


def rooms_behind(room):
  """Returns a room with those that it imports, directly or through others."""
  found, todo = set(), [room]
  while todo:
    found.add(room := todo.pop())
    todo += {*ARROWS.get(room, ()), *FOUNDATIONS} - found
  return found


def gin_files_behind(file):
  """Returns a gin file with those that it includes, directly or through others."""
  included = re.findall(r'^include "(.+)"$', (ROOT / file).read_text("utf-8"), re.MULTILINE)
  return {file}.union(*map(gin_files_behind, included))


def test_the_adapter_for_t5x_is_tested_when_anything_behind_it_changes():
  workflow = yaml.safe_load((ROOT / ".github/workflows/t5x.yml").read_text("utf-8"))
  triggers = workflow[True]  # YAML's value of `on`
  rooms = rooms_behind("t5x_adapter")
  sources = {
    path.relative_to(ROOT).as_posix()
    for file, path in source_files()
    if name(file.split("/")[0]) in rooms
  }
  gin_files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "gin/t5x").glob("*.gin")]
  sources |= set().union(*map(gin_files_behind, gin_files))
  assert len(rooms) > 15 and "gin/models/demo.gin" in sources
  for trigger in ("push", "pull_request"):
    patterns = triggers[trigger]["paths"]
    missed = [s for s in sources if not any(fnmatch.fnmatch(s, p) for p in patterns)]
    assert missed == []

"""The entry point: `realm JOB --gin_file=F --gin.NAME=VALUE --KEYWORD=VALUE`.

There are two products: `realm JOB` trains models and evaluates them, `realm kb JOB`
keeps a knowledge base.

A job is a function: a verb in `realm_jax/jobs/knowledge_base/`, or one in a module of the same
name, in a room of `realm_jax/jobs/` or in a file of your own, which takes the place of the job's
name: `realm FILE.py`. Its keywords come from gin files, then from `--gin.NAME=VALUE`, then from
plain flags; later ones win. Library code takes plain arguments: only `configuration` knows gin.

A job may return its own exit code. A user's mistake ends in one line on stderr: exit code 2 for a
wrong command line or configuration, 1 for what the job itself rejects. Bugs keep their traceback.
"""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import logging
import os
import pathlib
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from realm_jax import __version__
from realm_jax.command_line import flags, signatures
from realm_jax.command_line.flags import UsageError
from realm_jax.devices import backend
from realm_jax.foundations import child_processes, choices, extras
from realm_jax.text import terminal

_ROOMS = {
  "preparation": "prepare_corpus mask_sentences prepare_questions prepare_examples "
  "import_checkpoint export_checkpoint examples",
  "training": "check plan pretrain_mlm train_retriever build_index pretrain finetune launch_local",
  "demonstration": "demo",
  "answering": "evaluate ask serve",
}
_KNOWLEDGE_BASE = {  # several verbs a file
  "creation": "create",
  "contents": "add sync delete compact publish",
  "questions": "search ask train evaluate",
  "servers": "serve mcp",
}
JOBS: Mapping[str, str] = {
  **{
    f"kb {verb}": f"realm_jax.jobs.knowledge_base.{file}"
    for file, verbs in _KNOWLEDGE_BASE.items()
    for verb in verbs.split()
  },
  **{job: f"realm_jax.jobs.{room}.{job}" for room, jobs in _ROOMS.items() for job in jobs.split()},
}

_PACKAGE = pathlib.Path(__file__).resolve().parent

_WITHOUT_GIN = ("kb ", "examples")  # beginnings of names

_USAGE = """\
realm: retrieval-augmented language-model pre-training

usage: realm JOB [--gin_file=FILE]... [--gin.NAME=VALUE]... [--KEYWORD=VALUE]...
       realm kb JOB KNOWLEDGE_BASE ...
       realm JOB --help    every keyword of a job
       realm FILE.py ...   a job of your own, the function named like the file
       realm --version

jobs:
"""


def _common_flags(
  *,
  gin_file: Annotated[tuple[str, ...], choices.WHOLE] = (),
  traceback: bool = False,
  coordinator: str | None = None,
  num_processes: Annotated[int, choices.Bounds(least=1, below=2**31)] | None = None,
  process_id: choices.CountOrZero | None = None,
) -> None:
  """The flags of every job.

  Args:
    gin_file: Gin files; the flag may be repeated.
    traceback: Shows the traceback of an error.
    coordinator: HOST:PORT of the first of several processes; auto on a TPU pod.
    num_processes: Number of processes, unless --coordinator=auto.
    process_id: Index of this process, unless --coordinator=auto.
  """


_MEMORY_HINT = (  # follows the device's own message about its memory
  "Lower batch_size or tokens_per_batch, raise accumulate_steps, or give a smaller model "
  "(docs/performance.md)"
)


def main(argv: Sequence[str] | None = None, *, jobs: Mapping[str, str] = JOBS) -> int:
  """Runs one job and returns the exit code.

  Args:
    argv: Arguments after the program's name; None uses those of the process.
    jobs: Module of each job by its name, whose last word is the name of its function.
  """
  argv = list(sys.argv[1:] if argv is None else argv)
  child_processes.watch_parent()
  for stream in (sys.stdout, sys.stderr):  # which may not have all characters of documents
    if isinstance(stream, io.TextIOWrapper):
      stream.reconfigure(errors="replace")
  _show_notices()
  show_traceback = "--traceback" in argv or os.environ.get("REALM_TRACEBACK") == "1"
  try:
    code = _dispatch(argv, jobs)
    print(end="", flush=True)
    return code
  except UsageError as error:
    return _report("realm", error, show_traceback=show_traceback, code=2)
  except KeyboardInterrupt:
    return _report("realm", "interrupted", show_traceback=show_traceback, code=130)
  except Exception as error:
    if isinstance(error, BrokenPipeError) and _nobody_reads():
      return 128 + signal.SIGPIPE
    if "RESOURCE_EXHAUSTED" in str(error):
      error = f"{str(error).splitlines()[0]} {_MEMORY_HINT}"
      return _report(f"realm {split(argv, jobs)[0]}", error, show_traceback=show_traceback, code=1)
    trains = not argv[0].startswith("kb")
    if needed := extras.missing(error, trains=trains) or backend.not_started(error):
      error = needed
    elif not _is_user_error(error):
      raise
    return _report(f"realm {split(argv, jobs)[0]}", error, show_traceback=show_traceback, code=1)


def _nobody_reads() -> bool:
  """Returns whether standard output is a closed pipe, as of `head`, and discards what is left."""
  poll = select.poll()
  poll.register(sys.stdout.fileno(), 0)
  if is_closed := any(event & select.POLLERR for _, event in poll.poll(0)):
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  return is_closed


def _show_notices() -> None:
  """Shows this package's log messages, and all warnings, on the terminal."""
  logger = logging.getLogger("absl")
  logger.addFilter(_is_notice)
  logger.setLevel(logging.INFO)
  root = logging.getLogger()  # libraries may add handlers to it
  if not any(isinstance(handler, _Notices) for handler in root.handlers):
    root.addHandler(_Notices())


class _Notices(logging.Handler):
  """Writes to the current standard error, unless another handler does."""

  def emit(self, record: logging.LogRecord) -> None:
    streams = (sys.stderr, sys.__stderr__)
    shown = any(getattr(root, "stream", None) in streams for root in logging.getLogger().handlers)
    if not shown:
      try:
        print(terminal.plain(self.format(record)), file=sys.stderr, flush=True)
      except OSError:  # a notice that a full disk refuses does not end a training
        self.handleError(record)


def _is_notice(record: logging.LogRecord) -> bool:
  own = pathlib.Path(record.pathname).resolve().is_relative_to(_PACKAGE)
  return own or record.levelno >= logging.WARNING


def split(argv: Sequence[str], jobs: Mapping[str, str] = JOBS) -> tuple[str, list[str]]:
  """Returns the name of a job, of one or two words, and its arguments."""
  words = 2 if any(job.startswith(f"{argv[0]} ") for job in jobs) else 1
  return " ".join(argv[:words]), [*argv[words:]]


def _dispatch(argv: Sequence[str], jobs: Mapping[str, str]) -> int:
  known = [name for name, module in jobs.items() if importlib.util.find_spec(module)]
  name, arguments = split(argv or ["--help"], jobs)
  of_product = [job for job in known if job.startswith(f"{name.partition(' ')[0]} ")]
  if name.rpartition(" ")[2] in ("--help", "-h") or (of_product and " " not in name):
    shown = of_product or known
    lines = (f"  {job:<20} {_first_line(job, jobs[job])}" for job in shown)
    print(_USAGE + "\n".join(lines))
    return 0
  if name == "--version":
    print(f"realm_jax {__version__}")
    return 0
  if name not in known and not name.endswith(".py"):
    hint = f" (did you mean kb {name}?)" if f"kb {name}" in known else flags.nearest(name, known)
    raise UsageError(f"no job is named {name!r}{hint}; realm --help lists the jobs")

  # Read when a job imports TensorFlow, which complains where it finds no GPU.
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  common = flags.keywords(_common_flags)
  flagged = arguments[: arguments.index("--")] if "--" in arguments else arguments
  bindings = [a.removeprefix("--gin.") for a in flagged if a.startswith("--gin.")]
  rest = [a for a in flagged if not a.startswith("--gin.")] + arguments[len(flagged) :]
  # Code of others may do more than define.
  of_package = jobs.get(name, "").startswith(f"{__package__}.")
  with signatures.reading() if of_package else contextlib.nullcontext():
    job = find(name, jobs)
    name = job.__name__ if name.endswith(".py") else name
    keywords = flags.keywords(job)
    if "--help" in flagged or "-h" in flagged:
      _show_help(name, job, common)
      return 0
    given = _parse(name, rest, [*common, *keywords])
  gin_files = given.pop("gin_file", ())
  if not gin_files and not bindings:
    flags.refuse_missing(name, keywords, given)
  if of_package:
    job = find(name, jobs)
    keywords = flags.keywords(job)
  every = {keyword.name: given.pop(keyword.name, None) for keyword in common}
  joining = {flag: every[flag] for flag in ("coordinator", "num_processes", "process_id")}
  if any(value is not None for value in joining.values()):
    from realm_jax.devices import processes  # late, because it imports JAX

    try:
      processes.join(**joining)
    except ValueError as error:
      raise UsageError(str(error)) from error
  if name.startswith(_WITHOUT_GIN) and not gin_files and not bindings:
    return flags.call(job, given) or 0
  from realm_jax.command_line import configuration  # late, because it imports gin

  configuration.configure(job, gin_files=gin_files, bindings=bindings, values=given)
  if "jax" in sys.modules:  # only jobs that compute import it
    backend.keep_programs(configuration.directory(job, keywords))
  return configuration.run(name, job, keywords)


def _show_help(name: str, job: Callable[..., Any], common: Sequence[flags.Keyword]) -> None:
  keywords = flags.keywords(job)
  texts = [keyword for keyword in flags.flatten(keywords) if keyword.positional]
  words = "".join(f" {flags.placeholder(keyword)}" for keyword in texts)
  gin = "" if name.startswith(_WITHOUT_GIN) else " [--gin_file=FILE]... [--gin.NAME=VALUE]..."
  text = inspect.getdoc(job) or ""
  examples = "\n".join(line for line in text.splitlines() if line.startswith("  realm "))
  print(f"usage: realm {name}{words}{gin} [--KEYWORD=VALUE]...\n")
  print(text.partition("\n")[0])
  print(f"\n{examples}" * bool(examples), flags.help_text(keywords), sep="\n")
  print(flags.help_text(common).replace("the job", "every job"))


def _parse(name: str, words: Sequence[str], keywords: Sequence[flags.Keyword]) -> dict[str, Any]:
  try:
    return flags.parse(words, keywords)
  except ValueError as error:
    raise UsageError(f"{name}: {error}; see realm {name} --help") from error


def find(name: str, jobs: Mapping[str, str] = JOBS) -> Callable[..., Any]:
  """Returns a job by its name or its file.

  Raises:
    UsageError: If the file is missing or has no function of its name.
  """
  if not name.endswith(".py"):
    return getattr(importlib.import_module(jobs[name]), name.rpartition(" ")[2])
  path = pathlib.Path(name).resolve()
  # Processes that the job starts read gin files that import it.
  folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
  os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, folders), str(path.parent)])
  sys.path.append(str(path.parent))
  job = getattr(importlib.import_module(path.stem), path.stem, None) if path.exists() else None
  if job is None:
    raise UsageError(f"{name} is no file with a function {path.stem}, the job that it should have")
  return job


def _first_line(job: str, module: str) -> str:
  """Returns what a job does: the first line of its module, or of its function among several."""
  # Read, not imported: the list of jobs must not wait for JAX.
  spec = importlib.util.find_spec(module)
  assert spec is not None and spec.origin is not None, f"{module} is a file"
  tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
  verbs = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
  described = verbs[job.rpartition(" ")[2]] if " " in job else tree
  return (ast.get_docstring(described) or "").partition("\n")[0]


def _is_user_error(error: Exception) -> bool:
  own = type(error).__module__.partition(".")[0] == __package__
  return own or isinstance(error, (ValueError, OSError))


def _report(who: str, what: Exception | str, *, show_traceback: bool, code: int) -> int:
  if show_traceback and isinstance(what, Exception):
    traceback.print_exception(what)
  # gin appends the name of the job to every error of a job.
  message = str(what).partition("\n  In call to configurable")[0]
  print(f"{who}: {terminal.line(' '.join(message.split()))}", file=sys.stderr)
  return code


if __name__ == "__main__":
  sys.exit(main())

"""The entry point: `realm JOB --gin_file=F --gin.NAME=VALUE --KEYWORD=VALUE`.

A job is a function in a module of the same name, in a room of `realm_jax/jobs/` or in a file of
your own, which takes the place of the job's name: `realm FILE.py`. Its keywords come from gin
files, then from `--gin.NAME=VALUE`, then from plain flags; later ones win. Library code takes plain
arguments: only `configuration` knows gin.

A job may return its own exit code. A user's mistake ends in one line on stderr: exit code 2 for a
wrong command line or configuration, 1 for what the job itself rejects. Bugs keep their traceback.
"""

import ast
import importlib
import importlib.util
import inspect
import logging
import os
import pathlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from realm_jax import __version__, backend, configuration, flags, stopwatch
from realm_jax.configuration import UsageError, nearest

_ROOMS = {
  "preparation": "prepare_corpus make_almanac split_documents learn_vocabulary train_tagger "
  "tag_salient_spans mask_sentences prepare_questions prepare_examples prepare_pairs "
  "import_checkpoint export_checkpoint upload",
  "training": "pretrain_mlm train_retriever build_index pretrain finetune "
  "launch_local plan sweep demo",
  "answering": "evaluate compare_runs predict ask serve report",
}
JOBS: Mapping[str, str] = {
  job: f"realm_jax.jobs.{room}.{job}" for room, jobs in _ROOMS.items() for job in jobs.split()
}

_PACKAGE = pathlib.Path(__file__).resolve().parent

_USAGE = """\
realm: retrieval-augmented language-model pre-training

usage: realm JOB [--gin_file=FILE]... [--gin.NAME=VALUE]... [--KEYWORD=VALUE]...
       realm JOB --help    every keyword of a job
       realm FILE.py ...   a job of your own, the function named like the file
       realm --version

jobs:
"""

_JOINING = {  # flags for joining several processes: type, placeholder and meaning of each
  "coordinator": (str, "HOST:PORT|auto", "address of the first process; auto on a TPU pod"),
  "num_processes": (int, "INT", "number of processes, unless --coordinator=auto"),
  "process_id": (int, "INT", "index of this process, unless --coordinator=auto"),
}

_MEMORY_HINT = (  # follows the device's own message about its memory
  "Lower batch_size or tokens_per_batch, raise accumulate_steps, or give a smaller model "
  "(docs/performance.md)"
)


def main(argv: Sequence[str] | None = None, *, jobs: Mapping[str, str] = JOBS) -> int:
  """Runs one job and returns the exit code.

  Args:
    argv: Arguments after the program's name; None uses those of the process.
    jobs: Module of each job by its name, which is also the name of its function.
  """
  argv = list(sys.argv[1:] if argv is None else argv)
  stopwatch.job.restart()
  _show_notices()
  show_traceback = "--traceback" in argv or os.environ.get("REALM_TRACEBACK") == "1"
  try:
    return _dispatch(argv, jobs)
  except UsageError as error:
    return _report("realm", error, show_traceback=show_traceback, code=2)
  except KeyboardInterrupt:
    return _report("realm", "interrupted", show_traceback=show_traceback, code=130)
  except Exception as error:
    if "RESOURCE_EXHAUSTED" in str(error):
      error = f"{str(error).splitlines()[0]} {_MEMORY_HINT}"
      return _report(f"realm {argv[0]}", error, show_traceback=show_traceback, code=1)
    if not _is_user_error(error):
      raise
    return _report(f"realm {argv[0]}", error, show_traceback=show_traceback, code=1)


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
        print(self.format(record), file=sys.stderr, flush=True)
      except OSError:  # a notice that a full disk refuses does not end a training
        self.handleError(record)


def _is_notice(record: logging.LogRecord) -> bool:
  own = pathlib.Path(record.pathname).resolve().is_relative_to(_PACKAGE)
  return own or record.levelno >= logging.WARNING


def _dispatch(argv: Sequence[str], jobs: Mapping[str, str]) -> int:
  known = [name for name, module in jobs.items() if importlib.util.find_spec(module)]
  name, *arguments = argv or ["--help"]
  if name in ("--help", "-h"):
    lines = (f"  {job:<20} {_first_line(jobs[job])}" for job in known)
    print(_USAGE + "\n".join(lines))
    return 0
  if name == "--version":
    print(f"realm_jax {__version__}")
    return 0
  if name not in known and not name.endswith(".py"):
    hint = nearest(name, known)
    raise UsageError(f"no job is named {name!r}{hint}; realm --help lists the jobs")

  # Read when a job imports TensorFlow, which complains where it finds no GPU.
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  job = find(name, jobs)
  name = job.__name__
  keywords = flags.keywords(job)
  parser = _parser(name, job, keywords)
  bindings = [a.removeprefix("--gin.") for a in arguments if a.startswith("--gin.")]
  rest = [a for a in arguments if not a.startswith("--gin.")]
  try:
    values, unknown = flags.parse(parser, rest)
  except ValueError as error:
    raise UsageError(f"{name}: {error}") from error
  if unknown:
    raise UsageError(_about_unknown(name, unknown[0], parser, keywords))

  values = dict(values)
  values.pop("traceback", None)
  _join({flag: values.pop(flag) for flag in _JOINING if flag in values})
  configuration.configure(
    job,
    gin_files=values.pop("gin_file", ()),
    search_paths=",".join(values.pop("gin_search_paths", ())).split(","),
    bindings=bindings,
    values=values,
  )
  if "jax" in sys.modules:  # only jobs that compute import it
    backend.check()
    backend.keep_programs(configuration.directory(job, keywords))
  return configuration.run(name, job, keywords)


def find(name: str, jobs: Mapping[str, str] = JOBS) -> Callable[..., Any]:
  """Returns a job by its name or its file.

  Raises:
    UsageError: If the file is missing or has no function of its name.
  """
  if not name.endswith(".py"):
    return getattr(importlib.import_module(jobs[name]), name)
  path = pathlib.Path(name).resolve()
  # Processes that the job starts read gin files that import it.
  folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
  os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, folders), str(path.parent)])
  sys.path.append(str(path.parent))
  job = getattr(importlib.import_module(path.stem), path.stem, None) if path.exists() else None
  if job is None:
    raise UsageError(f"{name} is no file with a function {path.stem}, the job that it should have")
  return job


def _join(joining: Mapping[str, Any]) -> None:
  """Joins the processes of the job if the command line says that there are several."""
  if not joining:
    return
  from realm_jax import processes  # late, because it imports JAX

  try:
    processes.join(**{**dict.fromkeys(_JOINING), **joining})
  except ValueError as error:
    raise UsageError(str(error)) from error


def _parser(name: str, job: Callable[..., Any], keywords: Sequence[flags.Keyword]) -> flags.Parser:
  parser = flags.Parser(
    prog=f"realm {name}", description=(inspect.getdoc(job) or "").split("\n")[0]
  )
  parser.add_argument("--gin_file", action="append", metavar="FILE", help="gin file; repeatable")
  parser.add_argument(
    "--gin_search_paths",
    action="append",
    metavar="DIR,...",
    help="another directory to search for gin files",
  )
  parser.add_argument("--traceback", action="store_true", help="show the traceback of an error")
  for flag, (kind, metavar, meaning) in _JOINING.items():
    parser.add_argument(f"--{flag}", type=kind, metavar=metavar, help=meaning)
  parser.add_keywords(keywords)
  return parser


def _about_unknown(
  name: str, argument: str, parser: flags.Parser, keywords: Sequence[flags.Keyword]
) -> str:
  flag = argument.partition("=")[0]
  if not flag.startswith("-"):
    return f"{name}: unexpected argument {argument!r}; write --KEYWORD=VALUE"
  fields = [f"--{k.name}" for k in flags.leaves(keywords) if f"--{k.name}".startswith(f"{flag}.")]
  if fields:
    return f"{name}: {flag} has fields; write {', '.join(fields)}"
  if flag.removeprefix("--") in {k.name for k in flags.leaves(keywords)}:
    return f"{name}: {flag} is set through gin: --gin_file or --gin.{name}.{flag[2:]}=@..."
  hint = nearest(flag, parser.flag_names())
  return f"{name} knows no {flag}{hint}; see realm {name} --help"


def _first_line(module: str) -> str:
  # Read, not imported: the list of jobs must not wait for JAX.
  spec = importlib.util.find_spec(module)
  assert spec is not None and spec.origin is not None, f"{module} is a file"
  source = pathlib.Path(spec.origin).read_text(encoding="utf-8")
  return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def _is_user_error(error: Exception) -> bool:
  own = type(error).__module__.partition(".")[0] == __package__
  return own or isinstance(error, (ValueError, OSError))


def _report(who: str, what: Exception | str, *, show_traceback: bool, code: int) -> int:
  if show_traceback and isinstance(what, Exception):
    traceback.print_exception(what)
  # gin appends the name of the job to every error of a job.
  message = str(what).partition("\n  In call to configurable")[0]
  print(f"{who}: {' '.join(message.split())}", file=sys.stderr)
  return code


if __name__ == "__main__":
  sys.exit(main())

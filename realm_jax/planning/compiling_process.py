"""Compiles programs in a process of their own, because a compiler may abort its process."""

import multiprocessing
import os
import re
import signal
import tempfile
from collections.abc import Callable, Mapping, Set
from multiprocessing.connection import Connection

from realm_jax.planning.ahead_of_time import CompiledProgram

Compilations = Mapping[str, Callable[[], CompiledProgram]]
_FATAL = re.compile(r"^F\d{4} .*?\] (.*)$", re.MULTILINE)  # a line of libtpu's log


def compile_all(
  compilations: Callable[[], Compilations], *, preload: str
) -> dict[str, CompiledProgram]:
  """Returns every compiled program by its name; one that kills its process has a refusal.

  Args:
    compilations: Returns what compiles each program, by name. It is called in the process, and
      again in another one for the programs that are left if that dies.
    preload: A module to import once for all such processes.

  Raises:
    ChildProcessError: If a process dies and compiles nothing; any other error is that of the
      compilations.
  """
  # Forking this process would copy the threads of JAX in an unknown state.
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload([preload])
  done: dict[str, CompiledProgram] = {}
  while True:
    with tempfile.NamedTemporaryFile() as log:
      ours, theirs = context.Pipe(duplex=False)
      work = (theirs, log.name, compilations, frozenset(done))
      process = context.Process(target=_compile, args=work, daemon=True, name="compiler")
      process.start()
      theirs.close()
      begun = None
      try:
        while (message := ours.recv()) is not None:
          if isinstance(message, Exception):
            raise message
          if isinstance(message, CompiledProgram):
            done[message.name] = message
          else:
            begun = message
        return done
      except EOFError:
        process.join()
        reason = _reason(log.read().decode(errors="replace"), process.exitcode or 0)
        if begun is None or begun in done:
          raise ChildProcessError(reason) from None
        done[begun] = CompiledProgram(name=begun, refusal=reason)


def _compile(
  connection: Connection, log: str, compilations: Callable[[], Compilations], done: Set[str]
) -> None:
  """Sends the name of each program that is not done, then the program; at the end, None."""
  os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)
  try:
    for name, compile_program in compilations().items():
      if name not in done:
        connection.send(name)
        connection.send(compile_program())
    connection.send(None)
  except Exception as error:
    connection.send(error)


def _reason(log: str, exit_code: int) -> str:
  how = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
  fatal = _FATAL.search(log)
  return f"the compiler ended its process ({how})" + (f": {fatal[1][:300]}" if fatal else "")

"""A compiler that kills its process costs only the program that it failed at."""

import functools
import os
import sys

import pytest

from realm_jax.planning import compiling_process
from realm_jax.planning.ahead_of_time import CompiledProgram

ABORTED = "F1124 10:18:08.395341 7 lowered_getter.cc:23] Check failed: device_id < kMaxDeviceCount"


def compiled(name):
  return CompiledProgram(name=name, code_bytes=os.getpid())


def abort():
  print(ABORTED, file=sys.stderr, flush=True)
  os.abort()


def compilations(aborting):
  names = ("first", "second", "third")
  return {n: abort if n in aborting else functools.partial(compiled, n) for n in names}


def compile_all(programs):
  return compiling_process.compile_all(programs, preload=compiling_process.__name__)


@pytest.mark.parametrize("aborting", [(), ("second",), ("first", "third")])
def test_programs_are_compiled_besides_one_that_aborts(aborting):
  found = compile_all(functools.partial(compilations, aborting))
  assert list(found) == ["first", "second", "third"]
  for name, program in found.items():
    assert (program.refusal is not None) == (name in aborting)
    if program.refusal:
      assert "SIGABRT" in program.refusal and "kMaxDeviceCount" in program.refusal
    else:
      assert program.code_bytes not in (0, os.getpid())


def refuse():
  raise ValueError("batch_size=7")


def test_errors_are_those_of_the_compilations():
  with pytest.raises(ValueError, match="batch_size=7"):
    compile_all(refuse)
  with pytest.raises(ChildProcessError, match="SIGABRT"):
    compile_all(abort)

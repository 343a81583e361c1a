"""Counts what a GPU has to do for a program, from its text as XLA compiled it.

XLA's own analysis needs the device. Here, too, a kernel moves its operands and results, each once;
of an array that it only looks rows up in, or writes rows of, the rows. Caches make some of that
cheaper. Bodies of loops count as often as they run, or once if XLA does not say how often, and of
branches the last, which in our programs holds every batch. Operations are those of products of
matrices.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping

_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,]*)\]")
_NAME = re.compile(r"%([\w.\-]+)")
_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_NO_KERNELS = (
  "after-all bitcast constant get-tuple-element opt-barrier parameter partition-id replica-id tuple"
).split()
# Those that read some rows of their first operand, and those that write some of it in place, with
# the operand that has these rows.
_LOOK_UP = {"dynamic-slice", "gather", "slice"}
_IN_PLACE = {"dynamic-update-slice": 1, "scatter": 2}
# Products of two matrices in cuDNN's attention.
_ATTENTION = {"__cudnn$fmhaSoftmax": 2, "__cudnn$fmhaSoftmaxBackward": 5}


@dataclasses.dataclass(frozen=True)
class Counts:
  """What a device does in one run of a program; only a GPU's kernels are counted."""

  kernels: int = 0
  flops: float = 0.0
  bytes_accessed: float = 0.0

  def __add__(self, other: "Counts") -> "Counts":
    return Counts(
      self.kernels + other.kernels,
      self.flops + other.flops,
      self.bytes_accessed + other.bytes_accessed,
    )

  def __mul__(self, times: int) -> "Counts":
    return Counts(self.kernels * times, self.flops * times, self.bytes_accessed * times)


def count(text: str, *, branch: int = -1) -> Counts:
  """Returns the counts of a compiled program, given its text.

  Args:
    branch: The branch that every switch takes, such as 0 for the first.
  """
  program, entry = _parsed(text)
  return _Counting(program, branch).of(entry)


@dataclasses.dataclass(frozen=True)
class _Instruction:
  name: str
  type: str
  opcode: str
  arguments: str
  attributes: str
  is_root: bool

  @functools.cached_property
  def operands(self) -> tuple[str, ...]:
    return tuple(_NAME.findall(self.arguments))

  def called(self, *names: str) -> Iterator[str]:
    """Yields the computations that attributes name, in order."""
    for name in names:
      for listed in re.findall(rf"\b{name}=(?:{{(.*?)}}|(%\S+))", self.attributes):
        yield from _NAME.findall("".join(listed))


_Computation = dict[str, _Instruction]


def _parsed(text: str) -> tuple[Mapping[str, _Computation], str]:
  program, current, entry = {}, None, ""
  for line in text.splitlines():
    if header := _COMPUTATION.match(line):
      current = program[header[2]] = {}
      entry = header[2] if header[1] else entry
    elif line.startswith("}"):
      current = None
    elif current is not None and (found := _INSTRUCTION.match(line)):
      root, name, kind, opcode, rest = found.groups()
      arguments, _, attributes = rest.partition(")")
      opcode = "fusion" if opcode == "fusion-start" else opcode
      current[name] = _Instruction(name, kind, opcode, arguments, attributes, bool(root))
  if not entry:
    raise ValueError("this is no text of a compiled program; it has no ENTRY")
  return program, entry


def _arrays(kind: str) -> list[tuple[str, list[int]]]:
  return [(dtype, [int(n) for n in dims.split(",") if n]) for dtype, dims in _ARRAY.findall(kind)]


def _size(kind: str) -> float:
  """Returns the bytes of a type, which may be a tuple."""
  return sum(math.prod(dims) * _bits(dtype) / 8 for dtype, dims in _arrays(kind))


def _bits(dtype: str) -> int:
  digits = re.search(r"\d+", dtype)
  return int(digits[0]) if digits else 8  # of "pred"


@dataclasses.dataclass
class _Counting:
  program: Mapping[str, _Computation]
  branch: int

  def of(self, name: str) -> Counts:
    """Returns the counts of a computation whose instructions are kernels."""
    computation = self.program[name]
    return sum((self._instruction(computation, own) for own in computation.values()), Counts())

  def _instruction(self, computation: _Computation, own: _Instruction) -> Counts:
    if own.opcode == "while":
      trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', own.attributes)
      return self.of(next(own.called("body"))) * (int(trips[1]) if trips else 1)
    if own.opcode == "conditional":
      branches = own.called("branch_computations", "false_computation", "true_computation")
      return self.of([*branches][self.branch])
    if own.opcode in ("call", "async-start"):
      return sum(map(self.of, own.called("to_apply", "calls")), Counts())
    if own.opcode in _NO_KERNELS or own.opcode.endswith(("-done", "-update")):
      return Counts()
    moved = sum(self._read(computation, name, own) for name in set(own.operands))
    return Counts(1, self._flops(computation, own), moved + self._written(computation, own))

  def _flops(self, computation: _Computation, own: _Instruction) -> float:
    if own.opcode == "fusion":
      inner = self.program[next(own.called("calls"))]
      return sum(self._flops(inner, instruction) for instruction in inner.values())
    target = re.search(r'custom_call_target="([^"]+)"', own.attributes)
    if own.opcode == "dot" or (target and target[1].startswith("__cublas$")):
      (_, result), *_ = _arrays(own.type)
      ((_, first), *_) = _arrays(computation[own.operands[0]].type)
      summed = re.search(r'lhs_contracting_(?:dims=\{|dimensions":\[)([\d,"]*)', own.attributes)
      assert summed is not None, own.attributes
      return 2 * math.prod(result) * math.prod(first[int(i)] for i in re.findall(r"\d+", summed[1]))
    if target and target[1] in _ATTENTION:
      query, key = (_arrays(computation[name].type)[0][1] for name in own.operands[:2])
      return 2 * _ATTENTION[target[1]] * math.prod(query) * key[1]
    return 0.0

  def _read(self, computation: _Computation, name: str, user: _Instruction) -> float:
    """Returns the bytes that an instruction reads of an operand."""
    whole = _size(computation[name].type)
    first = name == user.operands[0] and name not in user.operands[1:]
    if user.opcode in _LOOK_UP and first:
      return _size(user.type)
    if user.opcode in _IN_PLACE and first:
      return 0.0 if user.opcode != "scatter" else self._written(computation, user)
    if user.opcode != "fusion":
      return whole
    inner = self.program[next(user.called("calls"))]
    parameters = {own.arguments: own for own in inner.values() if own.opcode == "parameter"}
    numbers = [str(i) for i, operand in enumerate(user.operands) if operand == name]
    return min(whole, sum(self._read_inside(inner, parameters[number]) for number in numbers))

  def _read_inside(self, inner: _Computation, own: _Instruction) -> float:
    """Returns the bytes that a fused computation reads of one of its values."""
    read = 0.0
    for user in inner.values():
      if own.name in user.operands:
        if user.opcode in ("bitcast", "convert") and not user.is_root:
          # Only what is used of it is computed.
          read += self._read_inside(inner, user) * _size(own.type) / _size(user.type)
        else:
          read += self._read(inner, own.name, user)
    return read

  def _written(self, computation: _Computation, own: _Instruction) -> float:
    """Returns the bytes that an instruction writes."""
    if own.opcode == "fusion":
      inner = self.program[next(own.called("calls"))]
      return self._written(inner, next(each for each in inner.values() if each.is_root))
    if own.opcode in ("tuple", "bitcast") and own.operands[0] in computation:
      return sum(self._written(computation, computation[name]) for name in own.operands)
    if own.opcode in _IN_PLACE:
      return _size(computation[own.operands[_IN_PLACE[own.opcode]]].type)
    results = _arrays(own.type)
    if own.opcode == "copy-start":
      results = results[:1]  # the others are its source and its state
    # The second result of a library's call is memory that it works in.
    if own.opcode == "custom-call" and len(results) > 1 and results[-1][0] in ("s8", "u8"):
      results = results[:-1]
    return sum(math.prod(dims) * _bits(dtype) / 8 for dtype, dims in results)

"""Finds the communication between devices in a compiled program."""

import dataclasses
import math
import re

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_CALL = re.compile(rf"= (\(?.*?\)?) ({'|'.join(KINDS)})(-start)?\(")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+)\[([\d,]*)\]")
_GROUPS = re.compile(r"replica_groups=(?:\[(\d+),(\d+)\]|\{\{([\d,]*)\})")


@dataclasses.dataclass(frozen=True)
class Collective:
  """All collectives of one kind in a program.

  Attributes:
    kind: One of `KINDS`.
    count: Number of collectives; one inside a loop counts once.
    result_bytes: Bytes of their results on one device.
    link_bytes: Bytes that one device sends, with ring algorithms.
  """

  kind: str
  count: int
  result_bytes: int
  link_bytes: float


def collectives(hlo: str, *, num_devices: int) -> list[Collective]:
  """Returns the collectives of a program in HLO text, by kind."""
  found: dict[str, list[tuple[int, float]]] = {}
  for line in hlo.splitlines():
    call = _CALL.search(line)
    if not call:
      continue
    shapes, kind, start = call.groups()
    sizes = [_bytes(*array) for array in _ARRAY.findall(shapes)]
    if start and kind != "all-reduce":
      # An asynchronous collective lists operand and result, which differ except in a permutation.
      sizes = [min(sizes) if kind == "reduce-scatter" else max(sizes)]
    size = sum(sizes)
    found.setdefault(kind, []).append((size, _sent(kind, size, _group_size(line, num_devices))))
  return [
    Collective(kind, len(rows), sum(r[0] for r in rows), sum(r[1] for r in rows))
    for kind, rows in sorted(found.items())
  ]


def _bytes(dtype: str, shape: str) -> int:
  bits = 8 if dtype == "pred" else int(re.findall(r"\d+", dtype)[0])
  return math.prod(int(size) for size in shape.split(",") if size) * max(1, bits // 8)


def _group_size(line: str, num_devices: int) -> int:
  groups = _GROUPS.search(line)
  if not groups:
    return num_devices
  if groups.group(2):
    return int(groups.group(2))
  return len(groups.group(3).split(",")) if groups.group(3) else num_devices


def _sent(kind: str, result_bytes: int, group: int) -> float:
  """Returns the bytes that one device of a ring sends."""
  share = (group - 1) / group
  return {
    "all-reduce": 2 * share * result_bytes,
    "all-gather": share * result_bytes,
    "reduce-scatter": (group - 1) * result_bytes,
    "all-to-all": share * result_bytes,
    "collective-permute": result_bytes,
  }[kind]

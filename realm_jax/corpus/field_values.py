"""Fields of documents as values that JSON has, whatever library they come from."""

import datetime
import decimal
import json
import numbers
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

_TIMES = (datetime.datetime, np.datetime64, np.timedelta64)


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
  """Returns fields as JSON holds them: dates as text, durations in seconds, arrays as lists.

  Scalars of NumPy and decimal numbers become numbers, and missing values in lists null.

  Raises:
    ValueError: If JSON cannot hold a value, or a text is no Unicode.
  """
  found = {}
  for name, value in fields.items():
    try:
      found[_text(name)] = _field(value)
    except UnicodeEncodeError as error:
      raise ValueError(
        f"field {name!r} has half of a surrogate pair, which is not Unicode"
      ) from error
    except (TypeError, ValueError, OverflowError) as error:
      raise ValueError(f"field {name!r} has {value!r:.60}, which JSON cannot hold") from error
    except RecursionError as error:
      raise ValueError(f"field {name!r} is nested too deep") from error
  return found


def is_missing(value: Any) -> bool:
  """Returns whether a value is None, NaN, or NaT or NA of pandas."""
  if isinstance(value, (numbers.Number, *_TIMES)):
    return bool(value != value)
  return value is None or type(value).__name__ == "NAType"


def _field(value: Any) -> Any:
  if isinstance(value, str):
    return _text(value)
  try:
    content = json.dumps(value, allow_nan=False, ensure_ascii=False)
  except (TypeError, ValueError):
    return _plain(value)
  return json.loads(_text(content))


def _plain(value: Any) -> Any:
  if isinstance(value, str):
    return _text(value)
  if isinstance(value, Mapping):
    return {next(iter(json.loads(json.dumps({k: 0})))): _plain(v) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [*map(_plain, value)]
  if is_missing(value):
    return None
  if isinstance(value, (bool, int)):
    return value
  if isinstance(value, numbers.Integral) and not isinstance(value, np.timedelta64):
    return int(value)
  if isinstance(value, numbers.Real) and not isinstance(value, np.timedelta64):
    return json.loads(json.dumps(float(value), allow_nan=False))
  return _plain(_simpler(value))


def _text(value: str) -> str:
  value.encode()
  return str.__str__(value)


def _simpler(value: Any) -> Any:
  """Returns what is nearer to JSON than a value."""
  if isinstance(value, decimal.Decimal):
    near = float(value)
    return near if decimal.Decimal(str(near)) == value else str(value)
  if isinstance(value, uuid.UUID):
    return str(value)
  if isinstance(value, (np.ndarray, np.generic)) and value.dtype.str.endswith("[ns]"):
    value = value.astype(f"{value.dtype.kind}8[us]")  # which do not become whole numbers
  for method in ("total_seconds", "isoformat", "tolist"):
    if hasattr(value, method):
      return getattr(value, method)()
  raise TypeError(type(value).__name__)

"""Values of fields become those that JSON has."""

import datetime
import decimal
import json
import uuid

import numpy as np
import pandas as pd
import pytest

from realm_jax.corpus.documents import Document, make_record
from realm_jax.corpus.field_values import plain

DAY = datetime.date(2021, 5, 1)
VALUES = [
  (True, True),
  (2**70, 2**70),
  (np.int8(3), 3),
  (np.bool_(False), False),
  (np.float32(0.5), 0.5),
  (np.longdouble(0.5), 0.5),
  (np.str_("a"), "a"),
  (decimal.Decimal("9.90"), 9.9),
  (decimal.Decimal("0.12345678901234567890"), "0.12345678901234567890"),
  (DAY, "2021-05-01"),
  (datetime.time(12, 30), "12:30:00"),
  (datetime.timedelta(minutes=1), 60.0),
  (np.datetime64("2021-05-01"), "2021-05-01"),
  (np.datetime64("2021-05-01T12:00", "ns"), "2021-05-01T12:00:00"),
  (np.timedelta64(2, "s"), 2.0),
  (pd.Timestamp("2021-05-01"), "2021-05-01T00:00:00"),
  (pd.Timedelta("1min"), 60.0),
  (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
  (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
  (np.array(["2021-05-01", "NaT"], "datetime64[ns]"), ["2021-05-01T00:00:00", None]),
  (pd.Series(["a", None]), ["a", None]),
  ((1, (DAY,)), [1, ["2021-05-01"]]),
  ([1.5, float("nan"), pd.NA, pd.NaT], [1.5, None, None, None]),
  ({"a": np.float64("nan"), 2: [DAY]}, {"a": None, "2": ["2021-05-01"]}),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=str)
def test_values_of_any_library_are_those_of_json(value, expected):
  found = plain({"f": value})["f"]
  assert found == expected and json.loads(json.dumps(found)) == found
  assert type(found) is type(expected)


@pytest.mark.parametrize(
  "value",
  [None, "", [], {}, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT")]
  + [np.timedelta64("NaT"), decimal.Decimal("NaN"), ()],
  ids=repr,
)
@pytest.mark.parametrize("name", ["f", "title", "spans", "_id"])
def test_a_missing_value_is_no_field(value, name):
  document = make_record({"text": "An oak.", name: value}, default_id="x", name="record 0")
  # Of spans, an empty list says that the text was tagged and nothing found.
  spans = () if name == "spans" and isinstance(value, (list, tuple)) else None
  assert document == Document(id="x", title="", text="An oak.", spans=spans)
  assert getattr(document, "fields", None) == {}


@pytest.mark.parametrize(
  "value", [{1}, b"a", 1j, object(), float("inf"), np.float16("-inf"), [np.inf, DAY], {(1,): 2}]
)
def test_what_json_cannot_hold_is_refused(value):
  with pytest.raises(ValueError, match="field 'f' has .*, which JSON cannot hold"):
    plain({"f": value})

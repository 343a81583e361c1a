import dataclasses
import sys
from typing import Literal

import pytest

from realm_jax.foundations import json_fields
from realm_jax.models import dual_encoder
from realm_jax.models.encoder import EncoderConfig


def test_a_class_of_the_package_is_found_by_a_process_that_has_not_imported_it(monkeypatch):
  monkeypatch.setattr(sys.modules["realm_jax.models"], "dual_encoder", dual_encoder)
  monkeypatch.delitem(sys.modules, dual_encoder.__name__)
  path = f"{dual_encoder.__name__}.DualEncoderConfig"
  assert json_fields._implementation(EncoderConfig, path).__name__ == "DualEncoderConfig"
  with pytest.raises(ValueError, match=r"EncoderConfig .* this\.BagConfig: if you trust this"):
    json_fields._implementation(EncoderConfig, "this.BagConfig")
  assert "this" not in sys.modules


@dataclasses.dataclass(frozen=True)
class Part:
  number: int = 0
  share: float = 0.0
  name: str = ""
  whole: bool = False
  kind: Literal["a", "b"] = "a"
  names: tuple[str, ...] = ()
  counts: dict[int, str] = dataclasses.field(default_factory=dict)
  maybe: int | None = None


def test_values_of_the_type_come_back():
  part = Part(3, 2, "n", True, "b", ("x",), {4: "y"}, None)
  content = {**json_fields.as_json(part), "names": ["x"], "counts": {"4": "y"}}
  assert json_fields.restored(Part, content) == part


@pytest.mark.parametrize(
  "wrong",
  [
    *({"number": value} for value in (1.5, float("inf"), True, None, "x")),
    *({"name": value} for value in (5, None)),
    *({"kind": value} for value in ("c", ["a"])),
    *({"names": value} for value in ([["a"]], 3)),
    *({"share": "1"}, {"whole": 1}, {"counts": {"x": "y"}}, {"unknown": 1}, [1], None),
  ],
)
def test_values_of_another_type_are_refused(wrong):
  with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
    json_fields.restored(Part, wrong)

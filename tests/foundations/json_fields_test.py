import sys

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

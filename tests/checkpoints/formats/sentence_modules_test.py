"""What a sentence-transformers directory may name."""

import json

import pytest

from realm_jax.checkpoints.formats import sentence_modules

LIBRARY = "sentence_transformers.models."


def write(directory, modules, *, routes=None, routes_file="router_config.json"):
  directory.mkdir(exist_ok=True)
  (directory / "modules.json").write_text(json.dumps(modules))
  if routes is not None:
    (directory / routes_file).write_text(json.dumps({"types": routes}))


def test_classes_and_folders_are_returned(tmp_path):
  assert sentence_modules.read(tmp_path) is None
  modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
  write(tmp_path, [{"type": LIBRARY + kind, "path": path} for kind, path in modules])
  assert sentence_modules.read(tmp_path) == modules


@pytest.mark.parametrize(
  ("modules", "message"),
  [
    ([{"type": "evil.Evil", "path": ""}], "evil.Evil is the model's own code"),
    ([{"type": "sentence_transformersevil.Evil", "path": ""}], "own code"),
    ([{"type": LIBRARY + "Normalize", "path": "../../.."}], "outside the directory"),
    ([{"type": LIBRARY + "Normalize", "path": "/etc"}], "outside the directory"),
    ([{"path": ""}], "needs a `type`"),
    ([{"type": LIBRARY + "Normalize"}], "needs a `type`"),
    (["Transformer"], "needs a `type`"),
    ([{"type": 3, "path": ""}], "needs a `type`"),
    ({"type": "evil.Evil"}, "holds a JSON dict"),
  ],
)
def test_what_is_not_the_librarys_or_damaged_is_refused(tmp_path, modules, message):
  write(tmp_path, modules)
  with pytest.raises(ValueError, match=message):
    sentence_modules.read(tmp_path)


@pytest.mark.parametrize("routes_file", ["router_config.json", "config.json"])
def test_what_a_router_names_is_checked_too(tmp_path, routes_file):
  router = [{"type": LIBRARY + "Router", "path": ""}]
  for routes, message in [
    ({"a": "evil.Evil"}, "evil.Evil is the model's own code"),
    ({"../a": LIBRARY + "Normalize"}, "outside the directory"),
    ({"a": None}, "needs a `type`"),
    ({str(n): LIBRARY + "Normalize" for n in range(200)}, "more than 100 modules"),
    ({"": LIBRARY + "Router"}, "more than 100 modules"),  # it routes to itself
  ]:
    write(tmp_path, router, routes=routes, routes_file=routes_file)
    with pytest.raises(ValueError, match=message):
      sentence_modules.read(tmp_path)


def test_weights_in_a_pickle_are_refused(tmp_path):
  write(tmp_path, [{"type": LIBRARY + "Dense", "path": "2_Dense"}])
  (tmp_path / "2_Dense").mkdir()
  (tmp_path / "2_Dense/pytorch_model.bin").write_bytes(b"")
  with pytest.raises(ValueError, match="is a pickle"):
    sentence_modules.read(tmp_path)
  (tmp_path / "2_Dense/model.safetensors").write_bytes(b"")
  assert sentence_modules.read(tmp_path) == [("Dense", "2_Dense")]

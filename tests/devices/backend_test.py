"""Reductions of our own programs against numpy; the flag and the check that keep them right."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from realm_jax.devices import backend
from realm_jax.models import bert, dual_encoder
from realm_jax.objectives import marginal_likelihood

# Powers of two and around them, and sizes at which processors were seen to compute wrongly.
SIZES = (4097, 20001, 40001, 65537)
BERT = bert.BertConfig(dtype="float32", hidden_size=16, num_heads=2)
PAIRS = dual_encoder.DualEncoder(dual_encoder.DualEncoderConfig(bert=BERT, projection_size=16))


def likelihood(scores, log_probs):
  weights, valid = jnp.ones((len(scores), 3)), jnp.ones(scores.shape, bool)
  return marginal_likelihood.marginal_log_likelihood(
    scores, log_probs, weights, valid_BxK=valid, marginalize="span"
  )


# A function of ours, the same in numpy, shapes of what it takes of n rows, and how many terms are
# added in a row; "rows" are so many that their roundings cancel, as the root of their number.
PROGRAMS = {
  "retrieval scores": (
    lambda q, p: PAIRS.apply({}, q, p, method="scores"),
    lambda q, p: np.einsum("be,bke->bk", q, p),
    lambda n: [(n, 16), (n, 8, 16)],
    16,
  ),
  "marginal likelihood": (
    likelihood,
    lambda s, p: special.logsumexp(special.log_softmax(s, -1) + p.sum(-1), axis=-1),
    lambda n: [(n, 8), (n, 8, 3)],
    4 * 8,
  ),
  "matrix by vector": (
    lambda m, x: jax.vmap(lambda row: jnp.sum((m @ row) ** 2))(x),
    lambda m, x: np.sum((x @ m.T) ** 2, -1),
    lambda n: [(3, 3), (n, 3)],
    4 * 3,
  ),
  "columns": (lambda x: jnp.sum(x, axis=0), lambda x: x.sum(0), lambda n: [(n, 24)], "rows"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_reductions_are_those_of_numpy(name, float_tolerance):
  program, reference, shapes, depth = PROGRAMS[name]
  random = np.random.default_rng(0)
  program = jax.jit(program)
  for size in SIZES:
    inputs = [random.standard_normal(shape, np.float32) for shape in shapes(size)]
    expected = reference(*(x.astype(np.float64) for x in inputs))
    roundings = 16 + np.sqrt(size) if depth == "rows" else depth
    atol = float_tolerance(depth=roundings, scale=np.abs(expected).max())
    np.testing.assert_allclose(program(*inputs), expected, rtol=0, atol=atol, err_msg=f"{size}")


def settings_after_import(monkeypatch, *, jaxlib, given=None):
  monkeypatch.setattr(backend, "_jaxlib_version", lambda: jaxlib)
  monkeypatch.setattr(backend, "_has_started", lambda: False)
  monkeypatch.delenv("XLA_FLAGS", raising=False)
  if given is not None:
    monkeypatch.setenv("XLA_FLAGS", given)
  backend.prepare()
  return os.environ.get("XLA_FLAGS")


FLAG = "--xla_cpu_experimental_ynn_fusion_type=-reduce"


@pytest.mark.parametrize(
  ("given", "found"),
  [
    (None, FLAG),
    ("", FLAG),
    ("--xla_cpu_max_isa=AVX2", f"--xla_cpu_max_isa=AVX2 {FLAG}"),
    ("--xla_cpu_experimental_ynn_fusion_type=dot", "--xla_cpu_experimental_ynn_fusion_type=dot"),
    ("flags.txt", "flags.txt"),
  ],
)
def test_the_flag_is_added_to_those_of_the_user(monkeypatch, given, found):
  assert settings_after_import(monkeypatch, jaxlib="0.10.2", given=given) == found


def test_other_jaxlibs_get_no_flag_that_they_might_not_know(monkeypatch):
  assert settings_after_import(monkeypatch, jaxlib="0.9.0") is None


@pytest.mark.parametrize(
  ("files", "given", "found"),
  [
    ((), None, "cpu"),
    ((), "tpu", "tpu"),
    (("accel0",), None, None),
    (("vfio/0",), None, None),
    (("vfio/vfio",), None, "cpu"),
    (("nvidia0", "nvidiactl"), None, None),
  ],
)
def test_libtpu_is_not_asked_where_no_accelerator_is(monkeypatch, tmp_path, files, given, found):
  (tmp_path / "dev/vfio").mkdir(parents=True)
  for file in files:
    (tmp_path / "dev" / file).touch()
  (tmp_path / "libtpu.py").touch()
  monkeypatch.syspath_prepend(tmp_path)
  accelerators = backend._accelerators(str(tmp_path / "dev"))
  monkeypatch.setattr(backend, "_accelerators", lambda: accelerators)
  monkeypatch.delenv("JAX_PLATFORMS", raising=False)
  if given:
    monkeypatch.setenv("JAX_PLATFORMS", given)
  backend.prepare()
  assert os.environ.get("JAX_PLATFORMS") == found


def wrong_sum():
  raise ArithmeticError("a sum is 1.0 instead of 2.0")


def test_a_jax_that_has_started_and_computes_wrongly_is_refused(monkeypatch):
  monkeypatch.setattr(backend, "_jaxlib_version", lambda: "0.10.2")
  monkeypatch.setattr(backend, "_sum", wrong_sum)
  jax.devices()
  monkeypatch.delenv("XLA_FLAGS")
  message = r"jaxlib 0.10.2 .*a sum is 1.0 instead of 2.0; import realm_jax.* before.*change"
  with pytest.raises(backend.MiscompilationError, match=message):
    backend.prepare()


@pytest.fixture
def checked(tmp_path, monkeypatch):
  """Resets the check, with the given program as what the child process computes."""
  monkeypatch.setenv("REALM_CACHE", str(tmp_path))
  program = tmp_path / "program.py"
  monkeypatch.setattr(backend, "__file__", str(program))
  return lambda text: (program.write_text(text), backend.check())


def test_a_processor_that_computes_wrongly_is_refused_until_it_does_not(checked):
  with pytest.raises(backend.MiscompilationError, match=r"': a sum is 1.0; change the flags"):
    checked("raise ArithmeticError('a sum is 1.0')")
  with pytest.raises(backend.MiscompilationError, match=r"': exit code -11; change the fl"):
    checked("import os; os.kill(os.getpid(), 11)")
  checked("")
  checked("raise ArithmeticError('known to be right, not computed again')")


def test_processors_of_one_name_are_told_apart_by_their_flags(checked, monkeypatch):
  fields = {"model name": "Xeon", "flags": "avx2 amx"}
  monkeypatch.setattr(backend, "_processor", lambda field="model name": fields[field])
  checked("")
  programs = backend.programs_directory("cache")
  fields["flags"] = "avx2"
  assert backend.programs_directory("cache") != programs
  with pytest.raises(backend.MiscompilationError, match=r"this processor \(Xeon\)"):
    checked("raise ArithmeticError('a sum is 1.0')")


def test_this_processor_computes_rightly():
  subprocess.run([sys.executable, "-P", backend.__file__], check=True)

"""The extras of the package: what to install for what is missing."""

import pathlib

_ENCODER = "flax google_crc32c jax jaxlib ml_dtypes optax orbax safetensors scipy tensorstore"
# Libraries, by the extra that brings them.
_LIBRARIES = {
  "encoder": f"{_ENCODER} tokenizers",
  "train": "gin matplotlib msgpack psutil scann seqio tensorboard tensorflow tensorflow_text",
  "documents": "pypdfium2",
  "serve": "fastapi jinja2 python_multipart uvicorn",
  "mcp": "mcp",
  "gcs": "gcsfs",
  "hub": "huggingface_hub",
  "parquet": "pyarrow",
  "sentence-transformers": "sentence_transformers",
  "trec": "ir_measures",
  "tpu": "libtpu",
  "watch": "watchfiles",
}
_CHECKOUT = pathlib.Path(__file__).resolve().parents[2]


def how_to_install(extra: str) -> str:
  """Returns the command that installs an extra, in a checkout or beside an installed package."""
  if (_CHECKOUT / "setup.py").exists():
    return f"pip install -e '.[{extra}]' in the checkout"
  return f"pip install 'realm_jax[{extra}]'"


def missing(error: Exception, *, trains: bool) -> str:
  """Returns which extra brings the library whose import failed, and how; "" for another error.

  Args:
    trains: Whether what failed needs all that trainings do.
  """
  if not isinstance(error, ModuleNotFoundError) or not error.name:
    return ""
  library = error.name.partition(".")[0]
  extra = next((name for name, of in _LIBRARIES.items() if library in of.split()), None)
  if extra is None:
    return ""
  extra = "train" if trains and extra == "encoder" else extra
  return f"{library} is missing, which the extra {extra} brings: {how_to_install(extra)}"

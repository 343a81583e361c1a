"""Installs realm_jax; `constraints.txt` pins the set that the Makefile installs."""

import os
import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
[VERSION] = re.findall(
  r'^__version__ = "([^"]+)"', (ROOT / "realm_jax/__init__.py").read_text("utf-8"), re.MULTILINE
)

# Where a release comes from, which only its builder knows, such as https://HOST/OWNER/realm_jax.
REPOSITORY = os.environ.get("REPOSITORY_URL", "").rstrip("/")

for name in ("examples", "gin", "launch"):
  if (ROOT / "realm_jax" / name).is_file():  # as a zip has a link
    raise SystemExit(f"realm_jax/{name} is no link to a folder any more; take a git clone")


def readme() -> str:
  """Returns README.md; its links and pictures are absolute if the repository is known."""
  text = (ROOT / "README.md").read_text("utf-8")
  if not REPOSITORY:
    return text
  text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{REPOSITORY}/raw/v{VERSION}/", text)
  return re.sub(r"(\]\()(?!https?:|#)", rf"\1{REPOSITORY}/blob/v{VERSION}/", text)


setuptools.setup(
  name="realm_jax",
  version=VERSION,
  description="Retrieval-augmented language-model pre-training (REALM) in JAX",
  long_description=readme(),
  long_description_content_type="text/markdown",
  author="The realm_jax authors",
  license_expression="Apache-2.0",
  license_files=["LICENSE"],
  url=REPOSITORY or None,
  project_urls={
    "Changelog": f"{REPOSITORY}/blob/v{VERSION}/CHANGELOG.md",
    "Documentation": f"{REPOSITORY}/tree/v{VERSION}/docs",
    "Issues": f"{REPOSITORY}/issues",
  }
  if REPOSITORY
  else {},
  classifiers=[
    "Development Status :: 4 - Beta",
    "Environment :: Console",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: MacOS",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3 :: Only",
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Topic :: Text Processing :: Indexing",
    "Typing :: Typed",
  ],
  keywords="retrieval search question-answering language-model jax tpu",
  python_requires=">=3.11",
  packages=setuptools.find_packages(include=["realm_jax*"]),
  # With this one entry an editable install is a path. Otherwise it is an import hook, which a
  # folder of the same name precedes: above a clone, `import realm_jax` would find that folder.
  package_dir={"": "."},
  package_data={
    # These folders are links, and no packages: gin/__init__.py would shadow gin-config.
    "realm_jax": ["py.typed", "gin/**/*.gin", "gin/**/*.sweep", "examples/*", "launch/**/*"],
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
    "beam": ["realm_jax[train]", "apache-beam>=2.60"],
    "cuda": ["realm_jax[train]", "jax[cuda]"],  # the CUDA that JAX chooses, or one of those below
    "cuda12": ["realm_jax[train]", "jax[cuda12]"],
    "cuda13": ["realm_jax[train]", "jax[cuda13]"],
    "documents": ["pypdfium2>=5"],  # PDF; what other documents need is in Python
    "faiss": ["realm_jax[train]", "faiss-cpu>=1.10"],
    "gcs": ["gcsfs>=2025.1"],
    "hub": ["huggingface-hub>=1.0"],
    "mcp": ["realm_jax[serve]", "mcp>=2.3,<3"],
    "parquet": ["pyarrow>=15"],
    "serve": ["fastapi>=0.115", "jinja2>=3.1", "python-multipart>=0.0.20", "uvicorn>=0.30"],
    "sentence-transformers": ["sentence-transformers>=6"],
    # What t5x needs of a package index; requirements-t5x.txt has t5x itself.
    "t5x": [
      "realm_jax[train]",
      *("cached_property", "chex", "clu>=0.0.12", "fiddle", "grain", "jaxtyping"),
    ],
    "tpu": ["realm_jax[train]", "jax[tpu]"],
    "trec": ["ir_measures>=0.4,<0.5"],
    "watch": ["watchfiles>=1"],
    "xmanager": ["realm_jax[train]", "xmanager>=0.7"],
  },
  entry_points={"console_scripts": ["realm=realm_jax.main:main"]},
)

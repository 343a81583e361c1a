"""Encoders from elsewhere: whatever turns texts into vectors, and how a folder knows it again.

The folder keeps no weights of such an encoder, but the embeddings of a few probe sentences. Another
encoder embeds these otherwise, and is refused before it is compared with what is stored.
"""

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from realm_jax.checkpoints.formats import sentence_modules
from realm_jax.foundations import array_folder, extras, hub, progress
from realm_jax.knowledge_base.encoders.together import Together
from realm_jax.knowledge_base.store import commits
from realm_jax.knowledge_base.store.passages import titled

# The last is long, so that an encoder that reads less of a text, or more, is another.
_PROBES = (
  "Moss grows in the shade of old trees.",
  "who wrote the first of them",
  "42 km, in 1958",
  " ".join(
    f"{sentence} " * 8
    for sentence in (
      "The harbour was closed for the winter because of ice.",
      "Her violin concerto had its first performance in Vienna.",
      "A cell divides once its chromosomes have been copied.",
      "Taxes on salt made the new minister unpopular.",
      "The goalkeeper saved two penalties in the final.",
      "Granite forms when magma cools slowly below ground.",
      "They translated the poem from Persian into Dutch.",
      "Each router keeps a table of the shortest paths.",
    )
  ),
)
_NEAR = 0.03  # relative distance of probes; half precision or another device changes them by less
_BATCH, _TOGETHER = 64, 8  # passages and questions of one call
_FILE = "encoder"
_KIND = array_folder.Kind(kind="encoder", format=1)
LIBRARY = "sentence-transformers:"  # begins the address of a model that this library loads
_VERSION = 6  # the first that does not run the code of a local model
_DOT_PRODUCTS = ("dot", "dot_product")  # as sentence-transformers calls them


class TextEncoder:
  """An object that embeds texts, called by one thread at a time.

  Vectors get length 1, so that scores are cosines, unless its `similarity_fn_name` is "dot".

  Args:
    given: Has `encode_query` and `encode_document`, or `encode`, or is called itself: each takes a
      list of strings and returns an array `[n, E]`.
    address: How to load it; "" for an object that has to be given again.

  Attributes:
    probes_PxE: Embeddings of the probe sentences as passages, then as questions.
  """

  def __init__(self, given: Any, *, address: str = ""):
    encode = getattr(given, "encode", given)
    self._encode_query = getattr(given, "encode_query", encode)
    self._encode_document = getattr(given, "encode_document", encode)
    if not (callable(self._encode_query) and callable(self._encode_document)):
      raise ValueError(
        f"encoder={given!r:.60} cannot embed; give a directory, a function of a list of strings, "
        "or an object with `encode`, or with `encode_query` and `encode_document`"
      )
    self.given, self.address = given, address
    self._unit_length = getattr(given, "similarity_fn_name", None) not in _DOT_PRODUCTS
    self._calling = threading.Lock()
    self._together = Together(self.questions, most=_TOGETHER)
    # Several at once and one alone, as passages and questions are later.
    documents = [
      self._embed(self._encode_document, texts) for texts in (_PROBES[:-1], _PROBES[-1:])
    ]
    questions = [self._embed(self._encode_query, [text]) for text in _PROBES]
    widths = dict.fromkeys(part.shape[1] for part in documents + questions)
    if len(widths) > 1:
      several = " and of ".join(map(str, widths))
      raise ValueError(f"the encoder's passages and questions have vectors of {several} numbers")
    self.probes_PxE = np.concatenate(documents + questions)

  def passages(self, passages: Sequence[tuple[str, str]]) -> np.ndarray:
    """Returns the float32 embeddings `[N, E]` of titles and texts."""
    texts = [titled(title, text).strip() for title, text in passages]
    batches = [texts[first : first + _BATCH] for first in range(0, len(texts), _BATCH)]
    parts = [
      self._embed(self._encode_document, batch)
      for batch in progress.track(batches, what="passages", size=len)
    ]
    return np.concatenate([self.probes_PxE[:0], *parts])

  def question(self, text: str) -> np.ndarray:
    """Returns the float32 embedding `[E]` of a question."""
    return self._together(text)

  def questions(self, texts: Sequence[str]) -> np.ndarray:
    """Returns the float32 embeddings `[N, E]` of questions."""
    return self._embed(self._encode_query, texts)

  def _embed(self, encode: Callable[[list[str]], Any], texts: Sequence[str]) -> np.ndarray:
    with self._calling:  # tokenizers of Hugging Face cannot be called by two threads
      returned = encode([*texts])
    try:
      several = hasattr(returned, "__array__") or hasattr(returned, "detach")
      vectors = _array(returned) if several else np.asarray([_array(each) for each in returned])
      if vectors.dtype.kind in "cSUmM":
        raise TypeError(f"it is of {vectors.dtype}")
      vectors = vectors.astype(np.float64)
    except (TypeError, ValueError) as error:
      raise ValueError(
        f"the encoder returned {type(returned).__name__} for {len(texts)} texts, which is no array "
        f"of numbers: {error}"
      ) from error
    width = self.probes_PxE.shape[1:] if hasattr(self, "probes_PxE") else vectors.shape[1:]
    if vectors.ndim != 2 or not vectors.size or vectors.shape != (len(texts), *width):
      raise ValueError(
        f"the encoder returned an array {[*vectors.shape]} for {len(texts)} texts; it has to be "
        f"[{len(texts)}, {width[0] if width and width[0] else 'E'}], a vector for each"
      )
    if self._unit_length:
      for norm in (np.inf, 2):  # squares of numbers far from 1 may not be in float64
        sizes = np.linalg.norm(vectors, norm, axis=1, keepdims=True)
        vectors = vectors / np.where(sizes > 0, sizes, 1)
    with np.errstate(over="ignore"):
      vectors = vectors.astype(np.float32)
      squares = np.square(vectors).sum(axis=1)  # no inner product is larger
    if not np.isfinite(squares).all():
      bad = np.flatnonzero(~np.isfinite(squares))[0]
      raise ValueError(
        f"the encoder returned NaN, infinity or numbers that are too large for {texts[bad]!r:.60}"
      )
    return vectors


def _array(returned: Any) -> np.ndarray:
  """Returns what an encoder returned as an array, also a tensor of PyTorch on any device."""
  is_tensor = hasattr(returned, "detach")
  return np.asarray(returned.detach().cpu().float() if is_tensor else returned)


@dataclasses.dataclass(frozen=True, eq=False)
class Kept:
  """What a folder keeps of an encoder; see `TextEncoder`."""

  address: str
  probes_PxE: np.ndarray

  def open(self, given: TextEncoder | None, *, path: str) -> TextEncoder:
    """Returns the encoder that was given for the knowledge base here.

    None is loaded whose address is in the folder alone, because a folder may be from strangers, and
    loading a model is up to its library.
    """
    if given is None:
      made = f"{path} was made with an encoder object, which its folder does not have; give it to "
      how = "KnowledgeBase(path, encoder=...)"
      if self.address:
        made = f"{path} was made with {self.address}, which is only loaded if you name it: "
        how = f"--encoder={self.address} or {how}"
      raise ValueError(f'{made}{how}, or search by words alone: by="words" or --by=words')
    self.check(given)
    return given

  def check(self, encoder: TextEncoder) -> None:
    """Checks that an encoder embeds the probes as this one."""
    here_PxE, there_PxE = encoder.probes_PxE, self.probes_PxE
    if here_PxE.shape != there_PxE.shape:
      raise ValueError(
        f"another encoder than what is stored was made with: its vectors have {here_PxE.shape[1]} "
        f"numbers, not {there_PxE.shape[1]}; give that one, or make another folder"
      )
    lengths_P = np.linalg.norm(there_PxE, axis=1)
    distances_P = np.linalg.norm(here_PxE - there_PxE, axis=1) / np.where(lengths_P, lengths_P, 1)
    if not distances_P.max() <= _NEAR:
      raise ValueError(
        "another encoder than what is stored was made with: it embeds probe sentences "
        f"{distances_P.max():.2f} of their length away ({_NEAR} would be the same); give that one, "
        "or make another folder"
      )


def opened(encoder: Any) -> TextEncoder | None:
  """Returns an encoder from elsewhere; None for none, or a directory of one that is ours."""
  if encoder is None or isinstance(encoder, TextEncoder):
    return encoder
  if not isinstance(encoder, (str, os.PathLike)):
    return TextEncoder(encoder)
  address = os.fspath(encoder)
  return _load(address) if address.startswith(LIBRARY) else None


def _load(address: str) -> TextEncoder:
  """Loads a model of sentence-transformers, once in a process."""
  try:
    import sentence_transformers
  except ImportError as error:
    raise ValueError(
      f"{address} needs that library: {extras.how_to_install('sentence-transformers')}; or "
      'search by words alone: by="words" or --by=words'
    ) from error
  version = sentence_transformers.__version__
  if int(version.partition(".")[0]) < _VERSION:
    raise ValueError(
      f"{address}: sentence-transformers {version} runs the code of models; pip install "
      f"'sentence-transformers>={_VERSION}', or load it yourself and give the object"
    )
  name = address.removeprefix(LIBRARY)
  if not os.path.exists(name) and "/" not in name:
    name = f"sentence-transformers/{name}"  # as the library has it
  model = hub.fetch(name)
  if not os.path.isdir(model.directory):
    raise FileNotFoundError(
      f"no directory {model.directory}; give that of a model of sentence-transformers, or the "
      'encoder itself to KnowledgeBase(path, encoder=...); or search by words: by="words"'
    )
  own = model.address if model.address != model.directory else os.path.abspath(model.directory)
  with _loading:
    if own not in _loaded:
      sentence_modules.read(model.directory)
      loaded = sentence_transformers.SentenceTransformer(
        model.directory, local_files_only=True, model_kwargs={"use_safetensors": True}
      )
      _loaded[own] = TextEncoder(loaded, address=LIBRARY + own)
    return _loaded[own]


_loading = threading.Lock()
_loaded: dict[str, TextEncoder] = {}


def keep(directory: str, encoder: TextEncoder, *, before: commits.Commit | None) -> str:
  """Notes an encoder in a knowledge base; returns its name there, a digest.

  Args:
    before: Has the name that it had before a kill; kept, because what it embedded is known by it.
  """
  name = before.settings.encoder if before else ""
  kept = find(directory, name) if name else None
  if kept is not None and kept.address == encoder.address:
    with contextlib.suppress(ValueError):
      kept.check(encoder)
      return name
  probes, address = {"probes": encoder.probes_PxE}, encoder.address
  return commits.write_model(
    directory,
    encoder.address.encode() + encoder.probes_PxE.tobytes(),
    write=lambda folder: array_folder.write_file(
      f"{folder}/{_FILE}", probes, kind=_KIND, description=address
    ),
  )


def find(directory: str, name: str) -> Kept | None:
  """Returns what a knowledge base keeps of an encoder from elsewhere; None if it is a model."""
  path = os.path.abspath(os.path.join(commits.model_path(directory, name), _FILE))
  return _read(path) if os.path.exists(path) else None


@functools.lru_cache(maxsize=16)
def _read(path: str) -> Kept:
  shapes = {"probes": f"f4 {2 * len(_PROBES)} E"}
  arrays, address = array_folder.open_file(path, kind=_KIND, of=str, shapes=shapes)
  return Kept(address, np.array(arrays["probes"]))

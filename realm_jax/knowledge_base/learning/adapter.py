"""What was learned of the embeddings of questions, and which questions it was learned from.

`Adapter` maps them, for any encoder; passages keep theirs:

  q' = |q| (q + q W + b) / |q + q W + b|
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from realm_jax.foundations import array_folder, array_shapes, json_fields, plain_files
from realm_jax.knowledge_base.learning.past_questions import digest
from realm_jax.knowledge_base.store import commits
from realm_jax.knowledge_base.store.snapshot import Snapshot

_KIND = array_folder.Kind(kind="adapter", format=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Adapter:
  """W and b, float32."""

  weights_ExE: np.ndarray
  bias_E: np.ndarray

  def __call__(self, question_E: np.ndarray) -> np.ndarray:
    """Returns the embedding of a question that passages are ranked by."""
    mapped_E = question_E + question_E @ self.weights_ExE + self.bias_E
    length = np.linalg.norm(mapped_E)
    return mapped_E * np.float32(np.linalg.norm(question_E) / length if length else 1)

  def write(self, directory: str) -> str:
    """Writes it into a knowledge base; returns its name there, a digest."""
    arrays = {"weights": self.weights_ExE, "bias": self.bias_E}
    return commits.write_model(
      directory,
      self.weights_ExE.tobytes() + self.bias_E.tobytes(),
      write=lambda folder: array_folder.write_file(f"{folder}/adapter", arrays, kind=_KIND),
    )

  @classmethod
  def open(cls, directory: str, name: str) -> "Adapter":
    """Opens that of a knowledge base."""
    path = f"{commits.model_path(directory, name)}/adapter"
    shapes = {"weights": "f4 E E", "bias": "f4 E"}
    arrays, _ = array_folder.open_file(path, kind=_KIND, shapes=shapes)
    with json_fields.named(path):
      for name, array in arrays.items():
        array_shapes.check_vectors(name, array)
    return cls(arrays["weights"], arrays["bias"])


def compared(snapshot: Snapshot, question_E: np.ndarray) -> np.ndarray:
  """Returns what passages are compared with for the embedding of a question."""
  compared_E = question_E if snapshot.adapt is None else snapshot.adapt(question_E)
  if not np.isfinite(compared_E @ compared_E):
    raise ValueError(
      "the question's embedding has NaN, infinity or numbers that are too large; the encoder or "
      "its adapter is damaged: restore the folder from a backup"
    )
  return compared_E


class Seen:
  """Questions that encoder and adapter have learned from, by digests of them."""

  def __init__(self, digests: Iterable[str] = ()):
    self._digests = frozenset(digests)

  def __contains__(self, key: str) -> bool:
    return digest(key) in self._digests

  def plus(self, keys: Iterable[str]) -> "Seen":
    """Returns these and others."""
    return Seen((*self._digests, *map(digest, keys)))

  def write(self, directory: str) -> str:
    """Writes them into a knowledge base; returns their name there, "" for none."""
    digests = sorted(self._digests)
    return commits.write_text(directory, "seen", "\n".join(digests)) if digests else ""

  @classmethod
  def open(cls, directory: str, name: str) -> "Seen":
    """Opens those of a knowledge base."""
    if not name:
      return cls()
    with plain_files.open_plain(f"{commits.model_path(directory, name)}/seen", "r") as file:
      return cls(file.read().split())

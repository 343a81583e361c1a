"""A residual map of the embeddings of questions, learned from questions, for any encoder.

  q' = |q| (q + q W + b) / |q + q W + b|

Passages keep their embeddings.
"""

import dataclasses
import os

import numpy as np

from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.knowledge_base import array_file, commits

_FILE = "adapter"
_KIND = DirectoryKind(name="an adapter", files=(_FILE,))


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
    content = self.weights_ExE.tobytes() + self.bias_E.tobytes()
    arrays = {"weights": self.weights_ExE, "bias": self.bias_E}

    def write(temporary: str) -> None:
      array_file.write(os.path.join(temporary, _FILE), arrays, metadata=None)

    return commits.write_model(directory, content, kind=_KIND, write=write)

  @classmethod
  def open(cls, directory: str, name: str) -> "Adapter":
    """Opens that of a knowledge base."""
    arrays, _ = array_file.open_mapped(os.path.join(commits.model_path(directory, name), _FILE))
    return cls(arrays["weights"], arrays["bias"])

"""Embeds the passages of a change in parts, and keeps them until the change is committed."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from realm_jax.foundations import progress
from realm_jax.knowledge_base import array_file

STAGED = "staged"
_PASSAGES_AT_ONCE = 1024  # that a kill loses at most: under a minute with a small encoder

Passage = tuple[str, str]  # title and text


class Embedder:
  """Embeds passages; those that a killed process had embedded are not embedded again.

  Args:
    directory: The folder of the knowledge base.
    model: Name of the encoder there.
    embed: Returns the embeddings `[N, E]` of passages.
  """

  def __init__(self, directory: str, model: str, embed: Callable[[Sequence[Passage]], np.ndarray]):
    self._folder, self._model, self._embed = os.path.join(directory, STAGED), model, embed
    self._used = False

  def __call__(
    self, passages: Sequence[Passage], *, known: Mapping[Passage, np.ndarray]
  ) -> np.ndarray:
    """Returns the embeddings `[N, E]` of passages, of which some are known."""
    staged, self._used = self._staged(), True
    distinct = dict.fromkeys(passages)
    found = {p: known[p] for p in distinct if p in known}
    found |= {p: staged[digest] for p in distinct if (digest := _digest(p)) in staged}
    # By length, so that each part has few lengths to compile and pad to.
    new = sorted((p for p in distinct if p not in found), key=lambda passage: len(passage[1]))
    firsts = range(0, len(new), _PASSAGES_AT_ONCE)
    parts = [new[first : first + _PASSAGES_AT_ONCE] for first in firsts]
    for number, part in enumerate(progress.track(parts, what="passages", size=len), start=1):
      found |= zip(part, computed_NxE := self._embed(part), strict=True)
      if number < len(parts):
        self._stage(part, computed_NxE)
    return np.stack([found[p] for p in passages]) if passages else self._embed([])

  def committed(self) -> None:
    """Removes what was kept for this change."""
    for path in self._paths() if self._used else ():
      os.unlink(path)

  def _stage(self, passages: Sequence[Passage], embeddings_NxE: np.ndarray) -> None:
    os.makedirs(self._folder, exist_ok=True)
    digests = np.frombuffer(b"".join(map(_digest, passages)), np.uint8)
    path = os.path.join(self._folder, f"{self._model}-{_digest(passages[0]).hex()}")
    arrays = {"digests": digests.reshape(len(passages), -1), "embeddings": embeddings_NxE}
    array_file.write(path, arrays, metadata=None)

  def _staged(self) -> dict[bytes, np.ndarray]:
    """Returns embeddings by the digest of their passage."""
    found = {}
    for path in self._paths(of=f"{self._model}-"):
      with contextlib.suppress(ValueError):  # half written
        arrays, _ = array_file.open_mapped(path)
        found |= zip(map(bytes, arrays["digests"]), arrays["embeddings"], strict=True)
    return found

  def _paths(self, *, of: str = "") -> list[str]:
    with contextlib.suppress(FileNotFoundError):
      names = [name for name in os.listdir(self._folder) if name.startswith(of)]
      return [os.path.join(self._folder, name) for name in names]
    return []


def _digest(passage: Passage) -> bytes:
  title, text = passage
  return hashlib.blake2b(f"{len(title)} {title}{text}".encode(), digest_size=16).digest()

"""SeqIO task of independent crops."""

import functools

import seqio

from realm_jax import tokenization
from realm_jax.data.crops import build_crops
from realm_jax.data.vocabulary import WordPieceVocabulary
from tasks.inverse_cloze import register_pairs


def register(
  *,
  corpus: str,
  vocabulary: str,
  shortest_crop: float = 0.1,
  longest_crop: float = 0.5,
  deletion_rate: float = 0.1,
  in_order: bool = False,
) -> seqio.Task:
  """Registers pairs of crops of a corpus's passages, unless they are registered already.

  Args:
    corpus: Directory of tagged examples, such as a passage store.
    vocabulary: Directory with `vocab.txt`.
    shortest_crop: Minimum share of the passage in a crop.
    longest_crop: Maximum share of the passage in a crop.
    deletion_rate: Probability of deleting a wordpiece of a crop.
    in_order: Whether unshuffled examples are in corpus order.

  Raises:
    FileNotFoundError: If the corpus has no tagged examples or the vocabulary is missing.
  """
  pieces = WordPieceVocabulary(tokenization.load(vocabulary))
  build = functools.partial(
    build_crops,
    vocabulary=pieces,
    shortest_crop=shortest_crop,
    longest_crop=longest_crop,
    deletion_rate=deletion_rate,
  )
  kind = f"independent_crops_{shortest_crop}_{longest_crop}_{deletion_rate}"
  return register_pairs(kind, build, corpus=corpus, vocabulary=pieces, in_order=in_order)

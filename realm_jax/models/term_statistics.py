"""What a lexical encoder takes from a corpus: terms and how rare they are, lengths of passages."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from realm_jax.devices.datatypes import Array, Tokens
from realm_jax.text import tags
from realm_jax.text.analysis import Analyzer
from realm_jax.text.wordpieces import SPECIAL_TOKENS, WordPieces

NO_TERM = -30.0  # log weight of wordpieces that are no terms, such as punctuation
_CONTINUES = -1  # in place of a term: the wordpiece continues a word
_NONE = 0  # [PAD], in place of a term
_ROWS = 2048  # passages that are counted together


def parameters(store, vocabulary: WordPieces, *, size: int) -> dict[str, dict[str, np.ndarray]]:
  """Returns the constants of a `LexicalEncoder`: the weights that BM25 has in a corpus.

  Args:
    store: A `PassageStore`; its passages are counted whole.
    size: V, at least that of the vocabulary.
  """
  languages = store.metadata.languages
  first: dict[str, int] = {}  # the term of each stem
  terms_V = np.arange(size)
  for i, stem in enumerate(_stems(vocabulary, languages)):
    terms_V[i] = _CONTINUES if stem is None else first.setdefault(stem, i) if stem else _NONE
  num_passages_V, mean_length = _counted(store, terms_V)
  idf_V = np.log1p((len(store) - num_passages_V + 0.5) / (num_passages_V + 0.5))
  passage_V = np.log(np.maximum(idf_V, 1e-3)) / 2
  passage_V[[vocabulary.vocabulary.index(token) for token in SPECIAL_TOKENS]] = NO_TERM
  query_V = passage_V.copy()
  for language in languages:
    idle = Analyzer([language]).idle(language)
    query_V[[first[word] for word in idle if word in first]] = NO_TERM
  found = {
    "query_log_weights": query_V,
    "passage_log_weights": passage_V,
    "terms": terms_V,
    "mean_length": np.array(mean_length),
  }
  return {name: {"values": values.astype(np.float32)} for name, values in found.items()}


def term_of_each(terms_V: Array, tokens: Tokens) -> Array:
  """Returns the term of each wordpiece `[F, L]`: of the word that it is, or of the piece itself."""
  of_words_FxL = jnp.asarray(terms_V)[tokens.ids].astype(jnp.int32)
  continues_FxL = (of_words_FxL < 0) & tokens.mask
  continued_FxL = jnp.pad(continues_FxL[:, 1:], ((0, 0), (0, 1)))
  return jnp.where(continues_FxL | continued_FxL, tokens.ids, of_words_FxL)


def _stems(vocabulary: WordPieces, languages: Sequence[str]) -> list[str | None]:
  """Returns the stem of each wordpiece: "" if it is no term, None if it continues a word."""
  # A word alone does not tell its language: among several, words are compared by their beginnings.
  analyzer = Analyzer(languages if len(languages) == 1 else [tags.UNDETERMINED])
  return [
    None if word.startswith("##") else "" if word in SPECIAL_TOKENS else _stem(analyzer, word)
    for word in vocabulary.vocabulary
  ]


def _stem(analyzer: Analyzer, word: str) -> str:
  return "".join(analyzer.terms(word)[:1])


def _counted(store, terms_V: np.ndarray) -> tuple[np.ndarray, float]:
  """Returns the number of passages with each term `[V]`, and their mean length in terms."""
  num_passages_V, num_terms = np.zeros(len(terms_V), np.int64), 0
  length = store.metadata.max_passage_length
  for start in range(0, len(store), _ROWS):
    rows = np.arange(start, min(start + _ROWS, len(store)))
    columns = [read(rows, length=length)[0] for read in (store.title_ids, store.body_ids)]
    ids_FxL = np.concatenate(columns, axis=1)
    terms_FxL = np.asarray(term_of_each(terms_V, Tokens(ids_FxL, ids_FxL > 0, ids_FxL)))
    num_terms += np.count_nonzero(terms_FxL)
    sorted_FxL = np.sort(terms_FxL, axis=1)
    first_FxL = np.diff(sorted_FxL, axis=1, prepend=-1) != 0
    num_passages_V += np.bincount(sorted_FxL[first_FxL], minlength=len(terms_V))
  return num_passages_V, max(num_terms / max(len(store), 1), 1.0)

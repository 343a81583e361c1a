"""Masks salient spans in sentences of held-out documents, to evaluate systems without labels."""

import json
import random
from collections.abc import Iterator

from realm_jax.corpus import tagged_examples
from realm_jax.corpus.passage_store import Passage
from realm_jax.foundations import atomic_files, choices
from realm_jax.foundations.output_kinds import FileKind
from realm_jax.text import tokenization
from realm_jax.text.segmentation import spaced, to_byte_offsets, word_spans

_SENTENCES = FileKind(name="a file of masked sentences", start=r'\{"id": "\d+", "text": ')
_FEWEST_WORDS = 6  # fewer say too little to search with


def mask_sentences(
  *,
  corpus: str,
  output: str,
  max_sentences: choices.Count = 1000,
  max_words: choices.Count = 40,
  seed: choices.Seed = 0,
) -> dict[str, int]:
  """Writes masked sentences for `realm evaluate`, at most one of each passage.

  Retrieval is then scored by whether a passage has the masked span, passages with the sentence
  itself left out.

  Args:
    corpus: Directory of a tagged corpus that nothing was trained on, from `realm prepare_corpus`.
    output: JSON Lines to write: `id`, `text`, `spans` (bytes of the text) and `answer`.
    max_sentences: Samples at most this many.
    max_words: Longer sentences are left out, because a query must hold the span.
    seed: Seeds the sample and the spans.

  Returns:
    The numbers of sentences written, and of passages that have one.
  """
  _SENTENCES.check(output)
  draw = random.Random(seed)
  passages = (p for file in tagged_examples.files(corpus) for p in tagged_examples.read_shard(file))
  records = []
  for passage in passages:
    candidates = [*_masked(passage, max_words=max_words)]
    if candidates:
      records.append({"id": f"{passage.uid}", **draw.choice(candidates)})
  if not records:
    raise ValueError(
      f"{corpus} has no sentence of {_FEWEST_WORDS} to {max_words} words with a salient span; "
      "raise --max_words"
    )
  kept = draw.sample(records, min(max_sentences, len(records)))
  lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
  atomic_files.write_text(output, "".join(lines), kind=_SENTENCES)
  print(f"{output}: {len(kept)} sentences, of {len(records)} passages", flush=True)
  return {"sentences": len(kept), "passages": len(records)}


def _masked(passage: Passage, *, max_words: int) -> Iterator[dict]:
  """Yields each salient span of a passage with the sentence around it."""
  raw = passage.text.encode()
  for start, limit in passage.sentences:
    text = raw[start:limit].decode()
    if not _FEWEST_WORDS <= len(spaced(text).split()) <= max_words:
      continue
    starts, limits = _borders(text)
    for first, last in passage.spans:
      # The C of °C need not be a wordpiece.
      if first - start in starts and last - start in limits:
        answer = raw[first:last].decode()
        yield {"text": text, "spans": [[first - start, last - start]], "answer": answer}


def _borders(text: str) -> tuple[set[int], set[int]]:
  """Returns the bytes at which words start, and those at which they end."""
  spans = tokenization.word_offsets(text)
  if spaced(text) != text:
    spans += to_byte_offsets(text, word_spans(text))
  return {start for start, _ in spans}, {limit for _, limit in spans}

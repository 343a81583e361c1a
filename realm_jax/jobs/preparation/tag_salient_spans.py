"""Tags the salient spans of a corpus: entities with a trained tagger, dates by pattern."""

import dataclasses
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from realm_jax import __version__
from realm_jax.data import entity_spans, salient_spans, tagged_examples
from realm_jax.data.tagged_examples import TaggedPassage
from realm_jax.devices import partitioning
from realm_jax.foundations import atomic_files, object_store, progress
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.runs import taggers
from realm_jax.saved import saved_models

MANIFEST = "tagging.json"
_TAGGED = DirectoryKind(
  name="a tagged corpus",
  files=(MANIFEST, tagged_examples.FILE_PATTERN, ".unfinished.*", "*/"),
  marks=(MANIFEST,),
)
_PASSAGES_PER_BLOCK = 4096  # tagged together, batched by length; bounds memory


def tag_salient_spans(
  *,
  tagger: str,
  corpus: str,
  output: str,
  step: int | None = None,
  labels: Sequence[str] | None = None,
  tokens_per_batch: int = 4096,
  model_parallel: int = 1,
) -> dict:
  """Writes the passages of a corpus with new salient spans (Guu et al. 2020, section 3.4).

  Each shard of the output appears when it is complete; an interrupted run continues with the next.
  `tagging.json` records the tagger and the version that found the spans.

  Args:
    tagger: Working directory of `realm train_tagger`.
    corpus: Directory of a corpus from `realm prepare_corpus`.
    output: Directory to write; an unfinished tagging is resumed.
    step: Step of the tagger's checkpoint; None uses the newest.
    labels: Labels of the entities to use; None uses all that the tagger knows.
    tokens_per_batch: Padded wordpieces per batch, over all devices.
    model_parallel: Number of devices that share one copy of the tagger.

  Returns:
    The numbers of shards, passages, entities, dates and spans that this call wrote.

  Raises:
    FileNotFoundError: If tagger or corpus is missing.
    ValueError: If the tagger lacks a label, or the output is from a different tagging.
  """
  object_store.check_local(output=output)
  _TAGGED.check(output)
  taggers.check_one_process()
  mesh = partitioning.make_mesh(model=model_parallel)
  saved = taggers.load(tagger, mesh=mesh, step=step)
  known = saved.description.labels
  unknown = sorted(set(labels or ()) - set(known))
  if unknown:
    raise ValueError(f"{tagger} does not know labels {unknown}; choose from {list(known)}")
  shards = tagged_examples.files(corpus)
  manifest = {
    "tagger": tagger,
    "step": saved.step,
    "parameters_digest": saved_models.params_digest(saved.params),
    "vocabulary_digest": saved.description.vocabulary_digest,
    "labels": list(known if labels is None else labels),
    "dates": "by pattern",
    "software": f"realm_jax {__version__}",
    "corpus": corpus,
    "shards": {os.path.basename(path): os.path.getsize(path) for path in shards},
  }
  os.makedirs(output, exist_ok=True)
  _check_or_write(os.path.join(output, MANIFEST), manifest)
  word_tagger = taggers.WordTagger(
    saved.description, tokenizer=saved.tokenizer, mesh=mesh, tokens_per_batch=tokens_per_batch
  )
  counts: Counter = Counter()
  for path in shards:
    target = os.path.join(output, os.path.basename(path))
    if os.path.exists(target):
      continue
    passages = progress.track(tagged_examples.read_shard(path), what="passages")
    tagged = _tagged(passages, word_tagger, saved.params, manifest["labels"], counts)
    counts["passages"] += tagged_examples.write_shard(target, tagged)
    counts["shards"] += 1
  report = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
  print(f"{output}: {report or 'all shards are finished'}", flush=True)
  return dict(counts)


def _tagged(
  passages: Iterable[TaggedPassage],
  word_tagger: taggers.WordTagger,
  params: dict,
  labels: Sequence[str],
  counts: Counter,
) -> Iterator[TaggedPassage]:
  passages = iter(passages)
  while block := list(itertools.islice(passages, _PASSAGES_PER_BLOCK)):
    words = [entity_spans.sentence_words(p.text, p.sentences) for p in block]
    flat = [sentence.words for sentences in words for sentence in sentences]
    tags = iter(word_tagger.tag(params, flat))
    for passage, sentences in zip(block, words, strict=True):
      entities = [
        span
        for sentence in sentences
        for span in entity_spans.entity_spans(sentence, next(tags), labels=labels)
      ]
      dates = salient_spans.find_dates(passage.text)
      spans = salient_spans.merge_spans(entities, dates)
      counts.update(entities=len(entities), dates=len(dates), spans=len(spans))
      yield dataclasses.replace(passage, spans=tuple(spans))


def _check_or_write(path: str, manifest: dict) -> None:
  if not os.path.exists(path):
    atomic_files.write_json(path, manifest)
    return
  with open(path, encoding="utf-8") as file:
    before = json.load(file)
  # The same tagger and corpus may have moved.
  for name in manifest.keys() - {"tagger", "corpus"}:
    if before.get(name) != manifest[name]:
      raise ValueError(
        f"{os.path.dirname(path)} was tagged with a different {name} ({before.get(name)}, now "
        f"{manifest[name]}); choose another output"
      )

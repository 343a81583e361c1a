"""Entity F1 of a tagger trained here, and of transformers' own training of the same weights.

Both begin with one Hugging Face directory and train with the same sentences, number of steps, batch
size, optimizer and schedule; both are scored word by word with seqeval. The two sides may run in
environments of their own, and a side that was stopped goes on where it was:

  python benchmarks/tagger.py --side=ours --model=MODEL --workdir=runs/tagger_benchmark
  python benchmarks/tagger.py --side=transformers --model=MODEL --workdir=runs/tagger_benchmark

On both sides a batch holds sentences of similar length. The files are wiki4type's (WikiGold and
CrossNER) where they lie beside the project.
"""

import argparse
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from realm_jax.data import conll  # noqa: E402
from realm_jax.evaluation import entities  # noqa: E402

WIKI4TYPE = ROOT.parent / "shared/data/ner/wiki4type"
IGNORED = -100  # by transformers' loss


def train_ours(args) -> dict:
  from realm_jax.jobs.preparation.import_checkpoint import import_checkpoint
  from realm_jax.jobs.preparation.train_tagger import train_tagger
  from realm_jax.runs.taggers import TaggerTraining
  from realm_jax.runs.training_config import RunConfig
  from realm_jax.training.optimizer import OptimizerConfig

  imported = os.path.join(args.workdir, "imported")
  if not os.path.exists(imported):
    import_checkpoint(source=[args.model], workdir=imported)
  return train_tagger(
    workdir=os.path.join(args.workdir, "ours"),
    train=os.path.join(args.data, "train.conll"),
    test=os.path.join(args.data, "test.conll"),
    vocabulary=os.path.join(imported, "vocabulary"),
    warm_start=os.path.join(imported, "checkpoints"),
    tagging=TaggerTraining(
      run=RunConfig(
        num_steps=args.num_steps,
        checkpoint_every=args.checkpoint_every,
        log_every=20,
        seed=args.seed,
        keep_checkpoints=2,
      ),
      optimizer=OptimizerConfig(
        name="adamw",
        learning_rate=args.learning_rate,
        warmup_steps=args.warmup_steps,
        weight_decay=0.01,
        epsilon=1e-8,
      ),
      batch_size=args.batch_size,
    ),
  )


def train_transformers(args) -> dict:
  import numpy as np
  import torch
  import transformers

  tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
  parts = {part: conll.read_conll(os.path.join(args.data, f"{part}.conll")) for part in PARTS}
  tags = conll.tag_set(parts["train"])
  ids = {tag: place for place, tag in enumerate(tags)}

  def encode(sentence: conll.TaggedSentence, max_length: int) -> dict:
    features = tokenizer(
      list(sentence.words), is_split_into_words=True, truncation=True, max_length=max_length
    )
    words = features.word_ids()
    labels = [
      IGNORED if word is None or word == before else ids[sentence.tags[word]]
      for before, word in zip([None, *words[:-1]], words, strict=True)
    ]
    return {**features, "labels": labels}

  examples = [encode(sentence, 128) for sentence in parts["train"]]
  torch.manual_seed(args.seed)
  model = transformers.AutoModelForTokenClassification.from_pretrained(
    args.model, num_labels=len(tags)
  )
  output = os.path.join(args.workdir, "transformers")
  trainer = transformers.Trainer(
    model=model,
    args=transformers.TrainingArguments(
      output_dir=output,
      max_steps=args.num_steps,
      per_device_train_batch_size=args.batch_size,
      learning_rate=args.learning_rate,
      warmup_steps=args.warmup_steps,
      weight_decay=0.01,
      seed=args.seed,
      use_cpu=True,
      report_to=[],
      disable_tqdm=True,
      logging_steps=20,
      save_steps=args.checkpoint_every,
      save_total_limit=1,
      group_by_length=True,
      dataloader_pin_memory=False,
    ),
    train_dataset=examples,
    data_collator=transformers.DataCollatorForTokenClassification(tokenizer),
  )
  trainer.train(resume_from_checkpoint=bool(list(pathlib.Path(output).glob("checkpoint-*"))))

  model.eval()
  predictions = []
  for sentence in parts["test"]:
    features = encode(sentence, model.config.max_position_embeddings)
    inputs = {name: torch.tensor([features[name]]) for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
      predicted = model(**inputs).logits[0].argmax(dim=-1).numpy()
    firsts = np.array(features["labels"]) != IGNORED
    found = dict(zip(_words_of(tokenizer, sentence, firsts), predicted[firsts], strict=True))
    predictions.append([tags[found[i]] if i in found else "O" for i in range(len(sentence.words))])
  return entities.entity_figures([sentence.tags for sentence in parts["test"]], predictions)


def _words_of(tokenizer, sentence, firsts) -> list[int]:
  """Returns which word each first wordpiece belongs to."""
  words = tokenizer(list(sentence.words), is_split_into_words=True, truncation=True).word_ids()
  return [word for word, first in zip(words, firsts, strict=True) if first]


PARTS = ("train", "test")
SIDES = {"ours": train_ours, "transformers": train_transformers}


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--side", choices=SIDES, required=True)
  parser.add_argument("--model", required=True, help="Hugging Face directory of a BERT")
  parser.add_argument("--data", default=str(WIKI4TYPE), help="with train.conll and test.conll")
  parser.add_argument("--workdir", default="runs/tagger_benchmark")
  parser.add_argument("--num_steps", type=int, default=240)
  parser.add_argument("--warmup_steps", type=int, default=24)
  parser.add_argument("--batch_size", type=int, default=32)
  parser.add_argument("--learning_rate", type=float, default=2e-4)
  parser.add_argument("--checkpoint_every", type=int, default=20)
  parser.add_argument("--seed", type=int, default=0)
  args = parser.parse_args()

  os.makedirs(args.workdir, exist_ok=True)
  log = pathlib.Path(args.workdir, f"{args.side}.json")
  before = json.loads(log.read_text()) if log.exists() else {"seconds": 0, "cpu_seconds": 0}
  started, cpu_started = time.perf_counter(), time.process_time()
  figures = {}
  try:
    figures = SIDES[args.side](args)
  finally:
    seconds = before["seconds"] + time.perf_counter() - started
    cpu_seconds = before["cpu_seconds"] + time.process_time() - cpu_started
    record = {"seconds": round(seconds), "cpu_seconds": round(cpu_seconds), **figures}
    log.write_text(json.dumps({"settings": vars(args), **record}, indent=2) + "\n")
  for side in SIDES:
    path = pathlib.Path(args.workdir, f"{side}.json")
    result = json.loads(path.read_text()) if path.exists() else {}
    if "f1" in result:
      print(f"{side:<13} F1 {result['f1']:.4f}  {result['cpu_seconds']:,} s of CPU")


if __name__ == "__main__":
  main()

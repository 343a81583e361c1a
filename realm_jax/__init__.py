"""REALM: retrieval-augmented language-model pre-training in JAX.

`import realm_jax` loads neither JAX nor TensorFlow: each public name is imported at its first use.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
  "corpus.passage_store": ("PassageStore",),
  "web.knowledge_base.serving": ("serve",),
  "knowledge_base.language_model": ("ChatServer",),
  "knowledge_base.knowledge_base": ("KnowledgeBase",),
  "knowledge_base.store.query": ("Query",),
  "index.words.bm25": ("Bm25Config", "Bm25Retriever"),
  "index.words.postings": ("Postings",),
  "index.vectors.searcher": ("Searcher", "SearcherConfig"),
  "text.analysis": ("Analyzer",),
  "models.bert": ("BertConfig",),
  "models.dual_encoder": ("DualEncoder", "DualEncoderConfig"),
  "models.encoder": ("Encoder", "EncoderConfig"),
  "objectives.contrastive": ("Contrastive",),
  "objectives.marginal_likelihood": ("MarginalLikelihood",),
  "training.recipes.plain_training": ("ContrastiveTraining",),
  "training.recipes.finetuning": ("Finetuning",),
  "training.recipes.pretraining": ("Pretraining",),
  "answering.open_answerer": ("open_answerer",),
  "checkpoints.opening": ("Sources",),
  "objectives.objective": ("Loss", "Objective"),
  "training.run.batch_sources": ("BatchSource",),
  "training.run.train_loop": ("train",),
  "training.run.train_program": ("TrainProgram",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
  if name not in _HOME_OF:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})

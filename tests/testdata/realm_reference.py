"""Makes small random REALM models with transformers, and what they compute.

`python tests/testdata/realm_reference.py`, with the packages of the extra `parity`, writes the
directory `realm/` beside this file: a directory for each model as its class saves it, and
`reference.npz` with inputs, and with outputs and gradients computed in float64.
"""

import copy
import pathlib

import numpy as np
import torch
import transformers

QUERIES, PASSAGES, MASKS, BEAM, READ = 2, 3, 2, 5, 3
QUERY_LENGTH, PASSAGE_LENGTH, JOINT_LENGTH = 8, 10, 14
CLS, SEP, FIRST_WORD = 2, 3, 5


def build(directory: pathlib.Path, *, seed: int, hidden_size: int, num_blocks: int) -> None:
  """Writes the models and their reference into an existing directory."""
  torch.manual_seed(seed)
  random = np.random.default_rng(seed)
  config = transformers.RealmConfig(
    vocab_size=30,
    hidden_size=hidden_size,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=hidden_size + 4,
    max_position_embeddings=16,
    retriever_proj_size=6,
    num_candidates=PASSAGES,
    pad_token_id=0,
    reader_beam_size=READ,
    searcher_beam_size=BEAM,
    max_span_width=3,
    span_hidden_size=5,
    num_block_records=num_blocks,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
  )
  two_towers = transformers.RealmEmbedder(config)
  models = {
    "embedder": transformers.RealmEmbedder(config),
    "scorer": transformers.RealmScorer(config),
    "two_tower_scorer": transformers.RealmScorer(config, query_embedder=two_towers),
    "encoder": transformers.RealmKnowledgeAugEncoder(config),
    "reader": transformers.RealmReader(config),
    "open_qa": transformers.RealmForOpenQA(config),
  }
  for model in models.values():
    _shake(model)
  models["open_qa"].block_emb.normal_()
  for name, model in models.items():
    # Towers in common, and words in common with the masked-LM head, are saved twice.
    state = {key: tensor.clone() for key, tensor in model.eval().state_dict().items()}
    model.save_pretrained(directory / name, state_dict=state)
  inputs = _inputs(random)
  wide = {name: copy.deepcopy(model).to(torch.float64) for name, model in models.items()}
  np.savez_compressed(
    directory / "reference.npz",
    **{f"inputs/{name}": value for name, value in inputs.items()},
    **_outputs(wide, inputs),
  )


def _shake(model) -> None:
  """Draws all parameters again, so that no bias is 0, no scale is 1 and no output is constant."""
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      is_scale = "norm" in name.lower() and name.endswith("weight")
      parameter.normal_(1.0 if is_scale else 0.0, 0.1 if is_scale else 0.3)


def _sequences(random, *shape, segments=False):
  """Rows `[CLS] words [SEP]` or `[CLS] words [SEP] words [SEP]` of random lengths."""
  ids = np.zeros(shape, np.int64)
  second = np.zeros(shape, np.int64)
  for row in np.ndindex(*shape[:-1]):
    length = random.integers(shape[-1] - 3, shape[-1] + 1)
    ids[row][:length] = random.integers(FIRST_WORD, 30, length)
    ids[row][0] = CLS
    ids[row][length - 1] = SEP
    if segments:
      border = random.integers(5, 7)
      ids[row][border - 1] = SEP
      second[row][border:length] = 1
  return ids, (ids > 0).astype(np.int64), second


def _inputs(random) -> dict[str, np.ndarray]:
  inputs = {}
  for name, shape, segments in (
    ("query", (QUERIES, QUERY_LENGTH), False),
    ("passage", (QUERIES, PASSAGES, PASSAGE_LENGTH), True),
    ("joint", (QUERIES, PASSAGES, JOINT_LENGTH), True),
    ("read", (READ, JOINT_LENGTH), True),
  ):
    ids, mask, second = _sequences(random, *shape, segments=segments)
    inputs |= {f"{name}_ids": ids, f"{name}_mask": mask, f"{name}_segments": second}
  inputs["mlm_positions"] = np.array([[1, 3], [2, 0]])
  inputs["mlm_targets"] = random.integers(FIRST_WORD, 30, (QUERIES, MASKS))
  inputs["mlm_weights"] = np.array([[1, 1], [1, 0]])
  inputs["relevance"] = random.normal(size=BEAM)
  inputs["has_answer"] = np.array([False, True, False, False, True])
  # One answer of one wordpiece, one of two, none; -1 fills up.
  first = [int(np.argmax(row)) for row in inputs["read_segments"]]
  inputs["starts"] = np.array([[first[0], first[0] + 2], [first[1] + 1, -1], [-1, -1]])
  inputs["ends"] = np.array([[first[0], first[0] + 3], [first[1] + 1, -1], [-1, -1]])
  return inputs


def _outputs(models, inputs) -> dict[str, np.ndarray]:
  outputs = {}
  query, passage, joint, read = (
    {
      key: torch.tensor(inputs[f"{name}_{ours}"])
      for key, ours in (
        ("input_ids", "ids"),
        ("attention_mask", "mask"),
        ("token_type_ids", "segments"),
      )
    }
    for name in ("query", "passage", "joint", "read")
  )
  embedder = models["embedder"]
  outputs["hidden"] = embedder.realm(**query).last_hidden_state
  outputs["embeddings"] = embedder(**query).projected_score
  labels = np.full(joint["input_ids"].shape[::2], -100)
  mask = np.zeros(labels.shape, np.int64)
  for row in range(QUERIES):
    for slot in range(MASKS):
      if inputs["mlm_weights"][row, slot]:
        position = inputs["mlm_positions"][row, slot]
        labels[row, position] = inputs["mlm_targets"][row, slot]
        mask[row, position] = 1
  for name in ("scorer", "two_tower_scorer"):
    scorer, encoder = models[name], models["encoder"]
    scorer.zero_grad()
    encoder.zero_grad()
    relevance = scorer(
      **query, **{f"candidate_{key}": value for key, value in passage.items()}
    ).relevance_score
    pretrained = encoder(
      **joint, relevance_score=relevance, labels=torch.tensor(labels), mlm_mask=torch.tensor(mask)
    )
    pretrained.loss.backward()
    outputs[f"{name}/relevance"] = relevance
    outputs[f"{name}/loss"] = pretrained.loss
    outputs |= _gradients(f"{name}/gradient/scorer/", scorer)
    outputs |= _gradients(f"{name}/gradient/encoder/", encoder)
  logits = pretrained.logits.reshape(QUERIES, PASSAGES, JOINT_LENGTH, -1)
  positions = torch.tensor(inputs["mlm_positions"])[:, None, :, None]
  outputs["mlm_logits"] = torch.take_along_dim(logits, positions, dim=2)
  for name in ("reader", "open_qa"):
    outputs |= _read(name, models[name], read, inputs)
  outputs["open_qa/embeddings"] = models["open_qa"].embedder(**query).projected_score
  return {name: value.detach().numpy() for name, value in outputs.items()}


def _read(name, model, read, inputs) -> dict:
  reader = model.reader if name == "open_qa" else model
  spans = []

  def keep(module, arguments, result):
    del module, arguments
    # Relevance is added to these logits in place.
    spans.append([part.clone() for part in result])

  reader.zero_grad()
  hook = reader.qa_outputs.register_forward_hook(keep)
  words = (read["input_ids"] != SEP) & (read["token_type_ids"] == 1)
  dtype = next(reader.parameters()).dtype
  relevance = torch.tensor(inputs["relevance"], dtype=dtype, requires_grad=True)
  result = reader(
    **read,
    relevance_score=relevance,
    block_mask=words,
    has_answers=torch.tensor(inputs["has_answer"]),
    start_positions=torch.tensor(inputs["starts"]),
    end_positions=torch.tensor(inputs["ends"]),
  )
  hook.remove()
  result.loss.backward()
  ((logits, starts, ends),) = spans
  return {
    f"{name}/span_logits": logits,
    f"{name}/span_starts": starts,
    f"{name}/span_ends": ends,
    f"{name}/words": words,
    f"{name}/retriever_loss": result.retriever_loss,
    f"{name}/reader_loss": result.reader_loss,
    f"{name}/best": torch.stack(
      [result.block_idx, result.start_pos.squeeze(), result.end_pos.squeeze()]
    ),
    f"{name}/gradient/relevance": relevance.grad,
    **_gradients(f"{name}/gradient/reader/", reader),
  }


def _gradients(prefix, model) -> dict:
  return {
    prefix + name: parameter.grad
    for name, parameter in model.named_parameters()
    if parameter.grad is not None
  }


if __name__ == "__main__":
  target = pathlib.Path(__file__).with_name("realm")
  target.mkdir(exist_ok=True)
  build(target, seed=0, hidden_size=8, num_blocks=7)

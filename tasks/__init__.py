"""The SeqIO tasks of `realm_jax.tasks`, where t5x's users look for them; not installed."""

from realm_jax.tasks import inverse_cloze, open_qa, salient_span_masking

__all__ = ["inverse_cloze", "open_qa", "salient_span_masking"]

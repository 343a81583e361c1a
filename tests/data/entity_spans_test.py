import numpy as np

from realm_jax.data.entity_spans import entity_spans, sentence_words

# Accents, composed and combining; CJK; emoji with what belongs to them; a letter beyond 16 bits.
PARTS = (
  *("Åse", "Zu\u0308rich", "e\u0301\u0323", "日本", "李", "か\u3099", "한국", "हिन्दी", "𠀀𝒳"),
  *("👍🏽", "👩\u200d👩\u200d👧", "🇳🇴", "☀\ufe0f", "U.S.", "O'Brien", "3,000.5", "plain", "a-b"),
)
BETWEEN = (" ", "  ", "\u00a0", "\n", "\u3000", ", ", " (", ") ", "")


def random_passage(random):
  """Returns a text and byte offsets of its sentences."""
  text, sentences = "", []
  for _ in range(random.integers(1, 4)):
    start = len(text.encode())
    for _ in range(random.integers(1, 8)):
      text += random.choice(PARTS) + random.choice(BETWEEN)
    sentences.append((start, len(text.encode())))
    text += " " * random.integers(0, 3)
  return text, sentences


def test_spans_of_any_tags_are_the_words_that_were_tagged():
  random = np.random.default_rng(0)
  tags = ("O", "B-A", "I-A", "B-B", "I-B")
  for _ in range(300):
    text, sentences = random_passage(random)
    raw = text.encode()
    found = sentence_words(text, sentences)
    assert len(found) == len(sentences)
    for sentence, (start, limit) in zip(found, sentences, strict=True):
      for word, (first, last) in zip(sentence.words, sentence.spans, strict=True):
        assert start <= first < last <= limit
        assert raw[first:last].decode() == word
      drawn = random.choice(tags, len(sentence.words)).tolist()
      spans = entity_spans(sentence, drawn, labels=("A", "B"))
      inside = set()
      for first, last in spans:
        assert raw[first:last].decode().strip() == raw[first:last].decode()
        inside.update(range(first, last))
      for tag, (first, last) in zip(drawn, sentence.spans, strict=True):
        assert (first in inside) == (tag != "O")
        assert (last - 1 in inside) == (tag != "O")


def test_entities_of_several_words_and_of_the_labels_asked_for():
  text = "É. Åse Öberg of 東京 met Jo."
  (sentence,) = sentence_words(text, [(4, len(text.encode()))])
  assert sentence.words == ("Åse", "Öberg", "of", "東", "京", "met", "Jo", ".")
  tags = ("B-PER", "I-PER", "O", "B-LOC", "I-LOC", "O", "B-PER", "O")
  raw = text.encode()

  def cut(labels):
    return [raw[a:b].decode() for a, b in entity_spans(sentence, tags, labels=labels)]

  assert cut({"PER", "LOC"}) == ["Åse Öberg", "東京", "Jo"]
  assert cut({"LOC"}) == ["東京"]
  assert cut(()) == []

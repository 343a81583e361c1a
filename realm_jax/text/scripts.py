"""Scripts that put no spaces between words, as the inside of a set in a regular expression."""

# In these a character is a syllable or a word, in those below less than a syllable.
IDEOGRAPHIC = r"\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Bopomofo}ー"
ALPHABETIC = r"\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}"
UNSPACED = IDEOGRAPHIC + ALPHABETIC

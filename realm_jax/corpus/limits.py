"""What one file may cost: the bounds on what people bring, in one place.

Bounds are sizes and never seconds, by which the same files would give other documents on a busy
machine.
"""

FRONT_MATTER = 2**15  # characters; what is longer is text
FRONT_MATTER_VALUES = 10_000  # which references may multiply
REPEATED_TITLE = 1_000  # characters that are searched with each passage of a document

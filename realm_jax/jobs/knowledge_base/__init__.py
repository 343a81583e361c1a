"""The verbs of `realm kb`: each is a function, whose docstring is its help.

They raise FileNotFoundError if the knowledge base or another input is missing, and ValueError if
an argument is wrong, with the reason; nothing is changed then.
"""

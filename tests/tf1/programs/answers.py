"""The answers of a program as flat lists: numbers for a `.npz`, words for a `.json`."""

import numpy as np


def flat(value):
    """The leaves of nested lists, tuples and dicts, in order."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in flat(value[key])]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def split(program, answers):
    """`(numbers, words)` of what a program returned, by program, key and place."""
    arrays, words = {}, {}
    for key in sorted(answers):
        for place, leaf in enumerate(flat(answers[key])):
            name = "%s/%s/%03d" % (program, key, place)
            if isinstance(leaf, (str, bool, type(None))):
                words[name] = leaf
            else:
                arrays[name] = np.asarray(leaf)
    return arrays, words


def programs_of(module):
    """The programs of a module by name."""
    return {
        name: value
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and callable(value) and value.__module__ == module.__name__
    }

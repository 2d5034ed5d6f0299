"""How recorded cases lie on disk: `<family>.jsonl` has a case a line, `<family>.npz` one vector for each dtype.

The arrays of a case are the next stretch of these vectors, in the order in which the line names them. Python 3.7 can load this.
"""

import json

import numpy as np


class Writer:
    """Collects the lines and vectors of one family."""

    def __init__(self):
        self.lines = []
        self.vectors = {}

    def add(self, name, made):
        """Add what `harness.run` made."""
        line = {"case": name}
        line.update(
            {key: made[key] for key in ("names", "last_id", "shapes", "dtypes", "variants", "ops") if key in made}
        )
        line["values"] = [[self._put(value) for value in one] for one in made["values"]]
        line["gradients"] = [None if gradient is None else self._put(gradient) for gradient in made["gradients"]]
        self.lines.append(json.dumps(line, separators=(",", ":"), sort_keys=True))

    def _put(self, array):
        if array.dtype.kind in "SUO":
            texts = [
                text.decode("latin1") if isinstance(text, bytes) else str(text) for text in array.reshape(-1).tolist()
            ]
            return ["string", list(array.shape), texts]
        self.vectors.setdefault(array.dtype.name, []).append(array.reshape(-1))
        return [array.dtype.name, list(array.shape)]

    def save(self, stem):
        """Write both files."""
        with open(str(stem) + ".jsonl", "w") as stream:
            stream.write("\n".join(self.lines) + "\n")
        np.savez_compressed(str(stem) + ".npz", **{kind: np.concatenate(parts) for kind, parts in self.vectors.items()})


def load(stem):
    """The recorded cases of one family: name to what `harness.run` made."""
    with np.load(str(stem) + ".npz") as archive:
        vectors = {kind: archive[kind] for kind in archive.files}
    used = dict.fromkeys(vectors, 0)

    def take(entry):
        kind, shape = entry[:2]
        if kind == "string":
            return np.array([text.encode("latin1") for text in entry[2]], dtype=object).reshape(shape)
        size = int(np.prod(shape))
        start = used[kind]
        used[kind] += size
        return vectors[kind][start : start + size].reshape(shape)

    found = {}
    with open(str(stem) + ".jsonl") as stream:
        for text in stream:
            line = json.loads(text)
            line["values"] = [[take(entry) for entry in one] for one in line["values"]]
            line["gradients"] = [None if entry is None else take(entry) for entry in line["gradients"]]
            found[line["case"]] = line
    return found

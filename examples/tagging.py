"""A tag for every step: which kind of bracket does this one close, if any? As many outputs as inputs, both ways."""

import torch
from torch import nn

import throughtime as tt

EPOCHS, SENTENCES = 12, 600
LETTERS, TAGS = "([a|", ("word", "opens", "closes a round one", "closes a square one")

torch.manual_seed(0)
torch.set_num_threads(1)


def sentence() -> tuple[torch.Tensor, torch.Tensor]:
    """Letters, where every closing bracket is the same character; only what is open says which kind it closes."""
    letters: list[int] = []
    tags: list[int] = []
    open_brackets: list[int] = []
    for _ in range(int(torch.randint(4, 25, ()))):
        kind = int(torch.randint(4, ()))
        if kind == 3 and open_brackets:
            letters.append(3)
            tags.append(2 + open_brackets.pop())
        elif kind < 2:
            open_brackets.append(kind)
            letters.append(kind)
            tags.append(1)
        else:
            letters.append(2)
            tags.append(0)
    return torch.tensor(letters), torch.tensor(tags)


class Tagger(nn.Module):
    """An embedding, a GRU in each direction, and a score for each tag at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 8)
        self.forwards, self.backwards = tt.GRUCell(32, input_size=8), tt.GRUCell(32, input_size=8)
        self.tag = nn.Linear(64, len(TAGS))

    def forward(self, letters: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        inputs = self.embedding(letters)
        outputs, _ = tt.bidirectional_dynamic_rnn(self.forwards, self.backwards, inputs, lengths, dtype=torch.float32)
        return self.tag(torch.cat(outputs, 2))


def measure(model: nn.Module, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
    """Padding counts neither in the loss nor in the accuracy."""
    scores = model(batch.inputs, batch.lengths)
    return {
        "loss": tt.train.cross_entropy(scores, batch.targets, batch.lengths),
        "accuracy": tt.train.accuracy(scores, batch.targets, batch.lengths),
    }


model = Tagger()
sentences = [sentence() for _ in range(SENTENCES)]
held_out = SENTENCES // 6
unseen = tt.train.loader(sentences[:held_out], batch_size=128, shuffle=False)
history = tt.train.fit(
    model,
    measure,
    tt.train.loader(sentences[held_out:], batch_size=32),
    unseen,
    optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
    epochs=EPOCHS,
    clip_norm=1.0,
    monitor="accuracy",
    higher_is_better=True,
    patience=5,
    keep_best=True,
    callbacks=[tt.train.Progress()],
)
letters, tags = sentences[0]
with torch.no_grad():
    found = model(letters[None], torch.tensor([len(letters)]))[0].argmax(1)
for letter, tag in zip(letters.tolist(), found.tolist(), strict=True):
    print(f"{LETTERS[letter]}  {TAGS[tag]}")
accuracy = tt.train.evaluate(model, measure, unseen)["accuracy"]
print(f"held out: {accuracy:.1%} of the tags are right")

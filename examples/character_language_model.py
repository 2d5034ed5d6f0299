"""A character language model: truncated backpropagation along streams of text, then sampling to the end of a line."""

import torch
from torch import nn

import throughtime as tt
from throughtime.decode import BasicDecoder, SampleEmbeddingHelper, dynamic_decode

EPOCHS, STREAMS, WINDOW = 15, 16, 32
LINES = [
    "a cell is one step of a recurrent network",
    "the state is what a cell remembers",
    "every sequence has a length of its own",
    "past its end a sequence gives zeros",
    "the gradient flows back through time",
    "what does not recur leaves the loop",
    "one engine runs any cell",
    "padding is never computed",
]

torch.manual_seed(0)
torch.set_num_threads(1)
text = "\n".join(LINES[int(index)] for index in torch.randint(len(LINES), (400,)))
alphabet = sorted(set(text))
ids = torch.tensor([alphabet.index(character) for character in text])
end = alphabet.index("\n")


class LanguageModel(nn.Module):
    """What comes next, given everything so far."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(alphabet), 16)
        self.cell = tt.MultiRNNCell([tt.LSTMCell(64), tt.LSTMCell(64)], input_size=16)
        self.next = nn.Linear(64, len(alphabet))

    def forward(self, characters: torch.Tensor, state: object = None) -> tuple[torch.Tensor, object]:
        outputs, state = tt.dynamic_rnn(self.cell, self.embedding(characters), initial_state=state, dtype=torch.float32)
        return self.next(outputs), state


def measure(model: nn.Module, batch: tt.train.Batch, state: object) -> tuple[dict[str, tt.train.Mean], object]:
    """The state at the end of one window is where the next begins."""
    scores, state = model(batch.inputs, state)
    return {"loss": tt.train.cross_entropy(scores, batch.targets)}, state


model = LanguageModel()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
streams = [tt.train.streams(ids, STREAMS)]
history = tt.train.fit(
    model,
    measure,
    streams,
    optimizer=optimizer,
    epochs=EPOCHS,
    truncate=WINDOW,
    clip_norm=1.0,
    callbacks=[tt.train.Progress()],
)

# Every row ends at its own end of line; nothing after it counts.
model.eval()
helper = SampleEmbeddingHelper(
    model.embedding.weight, start_tokens=torch.full((5,), end), end_token=end, softmax_temperature=0.5
)
decoder = BasicDecoder(model.cell, helper, model.cell.zero_state(5, torch.float32), output_layer=model.next)
with torch.no_grad():
    sampled, _, lengths = dynamic_decode(decoder, maximum_iterations=80)
written = [
    "".join(alphabet[index] for index in row[:length]).strip()
    for row, length in zip(sampled.sample_id.tolist(), lengths.tolist(), strict=True)
]
print(*written, sep="\n")

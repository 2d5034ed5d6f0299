"""Who is speaking? Utterances of 7 to 29 steps, batched by length, with `tt.train.fit` in place of a loop."""

import torch
from torch import nn

import throughtime as tt
from throughtime.data import japanese_vowels

EPOCHS = 30

torch.manual_seed(0)
torch.set_num_threads(1)  # small matrices: one thread is fastest
train, test = (
    [(sequence, speaker) for sequence, speaker in zip(part.sequences, part.speakers, strict=True)]
    for part in japanese_vowels()
)


class SpeakerClassifier(nn.Module):
    """Reads an utterance in both directions; the two final states say who speaks."""

    def __init__(self) -> None:
        super().__init__()
        self.forwards, self.backwards = tt.LSTMCell(64, input_size=12), tt.LSTMCell(64, input_size=12)
        self.speaker = nn.Sequential(nn.Dropout(0.5), nn.Linear(128, 9))

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        if self.training:
            inputs = inputs + 0.2 * torch.randn_like(inputs)  # only 30 utterances a speaker: noise makes more of them
        _, states = tt.bidirectional_dynamic_rnn(self.forwards, self.backwards, inputs, lengths, dtype=torch.float32)
        return self.speaker(torch.cat([state.h for state in states], 1))


def measure(model: nn.Module, batch: tt.train.Batch) -> dict[str, tt.train.Mean]:
    scores = model(batch.inputs, batch.lengths)
    return {
        "loss": tt.train.cross_entropy(scores, batch.targets),
        "accuracy": tt.train.accuracy(scores, batch.targets),
    }


model = SpeakerClassifier()
batches = tt.train.loader(train, batch_size=32)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
history = tt.train.fit(
    model,
    measure,
    batches,
    tt.train.loader(test, batch_size=128, shuffle=False),
    optimizer=optimizer,
    schedule=torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=EPOCHS * len(batches)),
    epochs=EPOCHS,
    clip_norm=1.0,
    callbacks=[tt.train.Progress()],
)
buckets = tt.train.Buckets([len(sequence) for sequence, _ in train], batch_size=32)
padding, at_random = buckets.padding, buckets.padding_at_random
print(f"padding in a batch: {padding:.0%}; it would be {at_random:.0%} if sequences met by chance")
print(f"test accuracy {history.epochs[-1].valid['accuracy']:.1%}")

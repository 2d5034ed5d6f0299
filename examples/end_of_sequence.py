"""Outputs of unknown length: `raw_rnn` runs each sequence until it says "end of sequence"."""

import torch

import throughtime as tt

n_tokens, EOS, longest = 6, 0, 12
cell = tt.OutputProjectionWrapper(tt.GRUCell(16), n_tokens)
first_tokens = torch.tensor([1, 2, 3, 4])


def as_input(tokens: torch.Tensor) -> torch.Tensor:
    """Tokens as one-hot rows."""
    return torch.nn.functional.one_hot(tokens, n_tokens).float()


def speak(time, cell_output, cell_state, loop_state):
    """Feed every token back as the next input; a row that has said EOS is finished."""
    if cell_output is None:  # before the first step: where to start, and what to emit (a token)
        state = cell.zero_state(len(first_tokens), torch.float32)
        return torch.zeros(4, dtype=torch.bool), as_input(first_tokens), state, torch.tensor(0), None
    tokens = torch.distributions.Categorical(logits=cell_output).sample()
    return (tokens == EOS) | (time >= longest), as_input(tokens), cell_state, tokens, None


torch.manual_seed(0)
emitted, final_state, _ = tt.raw_rnn(cell, speak)
sentences = emitted.stack().T  # [batch, steps]; past a row's EOS, zeros

for sentence in sentences.tolist():
    print(*sentence[: sentence.index(EOS)] if EOS in sentence else sentence)

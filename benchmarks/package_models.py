"""Models of published packages as their authors wrote them, with random weights, and a batch for each.

They are built from the packages' own classes, at the packages' own default sizes unless a comment says otherwise. No
weights are downloaded. `make models` installs the packages, each at one version (`real_models.txt`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn


class Model(NamedTuple):
    """A model, and what it gives for its batch: outputs in training, and in inference."""

    module: nn.Module
    train: Callable[[Any], Tensor]
    infer: Callable[[Any], Tensor]


Scale = int
"""Divides batches and lengths: 1 for a measurement, more to see whether the suite works."""


def _forecast(kind: str, scale: Scale, **options: Any) -> Model:
    """A model of neuralforecast over windows of one series each, three weeks of hours ahead of one day."""
    hours = 504 // scale
    module = getattr(import_module("neuralforecast.models"), kind)(h=24, input_size=hours, max_steps=1, **options)
    y = torch.randn(128 // scale, hours, 1)
    batch = dict.fromkeys(("futr_exog", "hist_exog", "stat_exog")) | {"insample_y": y}
    return Model(module, lambda module: module(dict(batch)), lambda module: module(dict(batch)))


def neuralforecast_lstm(scale: Scale) -> Model:
    return _forecast("LSTM", scale)


def neuralforecast_gru(scale: Scale) -> Model:
    return _forecast("GRU", scale)


def neuralforecast_deepar(scale: Scale) -> Model:
    return _forecast("DeepAR", scale)


def gluonts_deepar(scale: Scale) -> Model:
    """DeepAR of GluonTS over a week of hours: the loss in training, the parameters of a distribution in inference."""
    package = import_module("gluonts.torch.model.deepar.module")
    module = package.DeepARModel("h", context_length=168 // scale, prediction_length=24)
    rows, past, features = 128 // scale, module._past_length, 1
    batch: dict[str, Tensor] = {
        "feat_static_cat": torch.zeros(rows, 1, dtype=torch.long),
        "feat_static_real": torch.zeros(rows, 1),
        "past_time_feat": torch.randn(rows, past, features),
        "past_target": torch.randn(rows, past),
        "past_observed_values": torch.ones(rows, past),
        "future_time_feat": torch.randn(rows, 24, features),
    }
    target = torch.randn(rows, 24)

    def loss(module: Any) -> Tensor:
        result: Tensor = module.loss(**batch, future_target=target, future_observed_values=torch.ones_like(target))
        return result

    # Sampling is random; what it samples from is not.
    return Model(module, loss, lambda module: module.unroll_lagged_rnn(**batch, future_target=target)[2])


def pyannote_segmentation(scale: Scale) -> Model:
    """PyanNet as `segmentation-3.0` has it: four layers in both directions, five seconds of audio, seven classes."""
    layers = {"hidden_size": 128, "num_layers": 4, "bidirectional": True, "monolithic": True, "dropout": 0.5}
    module = import_module("pyannote.audio.models.segmentation").PyanNet(lstm=layers)
    # The task would bring this layer, with data to count the classes of.
    module.classifier, module.activation = nn.Linear(128, 7), nn.LogSoftmax(dim=-1)
    audio = torch.randn(8 // min(scale, 8), 1, 80_000 // scale)
    return Model(module, lambda module: module(audio), lambda module: module(audio))


def stanza_tagger(scale: Scale) -> Model:
    """The tagger of parts of speech: an LSTM over characters, then two highway layers in both directions over words."""
    sizes = {"word": 5000, "char": 100, "upos": 18, "xpos": 50, "feats": 40}
    options: dict[str, Any] = {
        "word_emb_dim": 75,
        "tag_emb_dim": 50,
        "transformed_dim": 125,
        "hidden_dim": 200,
        "num_layers": 2,
        "char": True,
        "char_emb_dim": 100,
        "char_hidden_dim": 400,
        "char_num_layers": 1,
        "char_rec_dropout": 0,
        "deep_biaff_hidden_dim": 400,
        "composite_deep_biaff_hidden_dim": 100,
        "pretrain": False,
        "dropout": 0.5,
        "rec_dropout": 0,
        "word_dropout": 0.33,
    }
    module = import_module("stanza.models.pos.model").Tagger(
        options, {name: range(size) for name, size in sizes.items()}
    )
    nn.init.normal_(module.upos_clf.weight)
    lengths = sorted(torch.randint(5, 40, (50 // scale + 1,)).tolist(), reverse=True)
    words, most = sum(lengths), lengths[0]
    letters = sorted(torch.randint(1, 15, (words,)).tolist(), reverse=True)
    word = torch.randint(1, 5000, (len(lengths), most))
    characters = torch.randint(1, 100, (words, letters[0]))
    tags = [torch.randint(1, sizes[name], (len(lengths), most)) for name in ("upos", "xpos", "feats")]

    def run(module: Any) -> Tensor:
        order = torch.arange(words).tolist()
        result: Tensor = module(word, None, characters, None, tags, None, order, lengths, letters, None)[0]
        return result

    return Model(module, run, run)


def asteroid_dprnn(scale: Scale) -> Model:
    """DPRNNTasNet, which separates two speakers; one second of audio at 8 kHz, and filters of 2 ms."""
    tas_net = import_module("asteroid.models").DPRNNTasNet
    module = tas_net(n_src=2, chunk_size=max(4, 100 // scale), n_repeats=6 if scale == 1 else 1)
    audio = torch.randn(2, 1, 8000 // scale)
    return Model(module, lambda module: module(audio), lambda module: module(audio))


def _stand_in(module: str, *names: str) -> None:
    """An empty module, with names that are imported and not used, where there is none."""
    absent = ModuleType(module)
    for name in names:
        setattr(absent, name, None)
    sys.modules.setdefault(module, absent)


def deep_filter_net(scale: Scale) -> Model:
    """DeepFilterNet 3: four seconds of spectra, 32 bands of them and the 96 lowest bins."""
    # Its library in Rust makes spectra of audio, and an old module of torchaudio describes files. Neither has a part in
    # the model, but the package imports names of both.
    _stand_in("libdf", "DF", "erb", "erb_norm", "unit_norm", "unit_norm_init")
    _stand_in("torchaudio.backend")
    _stand_in("torchaudio.backend.common", "AudioMetaData")
    import_module("df.config").config.use_defaults(allow_reload=True)
    bands_of = import_module("df.modules").erb_fb
    # Bands grow with frequency, as on the scale of hearing; all 481 bins are in one of them.
    widths = np.array([2] * 8 + [5] * 8 + [16] * 8 + [37] * 7 + [38])
    to_bands, from_bands = (bands_of(widths, 48_000, inverse=inverse) for inverse in (False, True))
    module = import_module("df.deepfilternet3").DfNet(to_bands, from_bands)
    rows, steps = 4, 400 // scale
    spectra, bands, bins = (torch.randn(rows, 1, steps, *sizes) for sizes in ((481, 2), (32,), (96, 2)))
    return Model(
        module,
        lambda module: module(spectra.clone(), bands, bins)[0],
        lambda module: module(spectra.clone(), bands, bins)[0],
    )


MODELS: dict[str, Callable[[Scale], Model]] = {
    "neuralforecast LSTM": neuralforecast_lstm,
    "neuralforecast GRU": neuralforecast_gru,
    "neuralforecast DeepAR": neuralforecast_deepar,
    "GluonTS DeepAR": gluonts_deepar,
    "pyannote PyanNet": pyannote_segmentation,
    "Stanza tagger": stanza_tagger,
    "Asteroid DPRNNTasNet": asteroid_dprnn,
    "DeepFilterNet 3": deep_filter_net,
}

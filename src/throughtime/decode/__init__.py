"""Outputs of unknown length: decoders that run until each row has said its end token, attention, and beam search."""

from throughtime.decode._attention_state import AttentionWrapperState
from throughtime.decode._decoder import Decoder
from throughtime.decode._dense import Dense
from throughtime.decode._dynamic_decode import dynamic_decode
from throughtime.decode._loss import SequenceLoss, sequence_loss
from throughtime.decode.attention._mechanisms import AttentionMechanism, BahdanauAttention, LuongAttention
from throughtime.decode.attention._memory import Memory
from throughtime.decode.attention._monotonic import (
    BahdanauMonotonicAttention,
    LuongMonotonicAttention,
    hardmax,
    monotonic_attention,
    safe_cumprod,
)
from throughtime.decode.attention._wrapper import AttentionWrapper
from throughtime.decode.decoders._basic import BasicDecoder, BasicDecoderOutput
from throughtime.decode.decoders._beam_search import (
    BeamSearchDecoder,
    BeamSearchDecoderOutput,
    BeamSearchDecoderState,
    FinalBeamSearchDecoderOutput,
)
from throughtime.decode.decoders._beam_tree import gather_tree, gather_tree_from_array, tile_batch
from throughtime.decode.helpers._helper import CustomHelper, Helper
from throughtime.decode.helpers._inference import GreedyEmbeddingHelper, InferenceHelper, SampleEmbeddingHelper
from throughtime.decode.helpers._training import (
    ScheduledEmbeddingTrainingHelper,
    ScheduledOutputTrainingHelper,
    TrainingHelper,
)

__all__ = [
    "AttentionMechanism",
    "AttentionWrapper",
    "AttentionWrapperState",
    "BahdanauAttention",
    "BahdanauMonotonicAttention",
    "BasicDecoder",
    "BasicDecoderOutput",
    "BeamSearchDecoder",
    "BeamSearchDecoderOutput",
    "BeamSearchDecoderState",
    "CustomHelper",
    "Decoder",
    "Dense",
    "FinalBeamSearchDecoderOutput",
    "GreedyEmbeddingHelper",
    "Helper",
    "InferenceHelper",
    "LuongAttention",
    "LuongMonotonicAttention",
    "Memory",
    "SampleEmbeddingHelper",
    "ScheduledEmbeddingTrainingHelper",
    "ScheduledOutputTrainingHelper",
    "SequenceLoss",
    "TrainingHelper",
    "dynamic_decode",
    "gather_tree",
    "gather_tree_from_array",
    "hardmax",
    "monotonic_attention",
    "safe_cumprod",
    "sequence_loss",
    "tile_batch",
]

"""Outputs of unknown length: decoders that run until each row has said its end token, attention, and beam search."""

from throughtime.decode._attention_state import AttentionWrapperState
from throughtime.decode._attention_wrapper import AttentionWrapper
from throughtime.decode._basic import BasicDecoder, BasicDecoderOutput
from throughtime.decode._beam_search import (
    BeamSearchDecoder,
    BeamSearchDecoderOutput,
    BeamSearchDecoderState,
    FinalBeamSearchDecoderOutput,
)
from throughtime.decode._decoder import Decoder
from throughtime.decode._dense import Dense
from throughtime.decode._dynamic_decode import dynamic_decode
from throughtime.decode._helper import CustomHelper, Helper
from throughtime.decode._inference import GreedyEmbeddingHelper, InferenceHelper, SampleEmbeddingHelper
from throughtime.decode._loss import SequenceLoss, sequence_loss
from throughtime.decode._mechanism import AttentionMechanism, BahdanauAttention, LuongAttention
from throughtime.decode._memory import Memory
from throughtime.decode._monotonic import (
    BahdanauMonotonicAttention,
    LuongMonotonicAttention,
    hardmax,
    monotonic_attention,
    safe_cumprod,
)
from throughtime.decode._training import (
    ScheduledEmbeddingTrainingHelper,
    ScheduledOutputTrainingHelper,
    TrainingHelper,
)
from throughtime.decode._trees import gather_tree, gather_tree_from_array, tile_batch

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

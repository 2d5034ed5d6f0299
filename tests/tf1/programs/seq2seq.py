"""Programs with decoders, helpers and attention."""

import numpy as np

from .helpers import error_of, fill_variables, names, numbers, shapes


def _flat(tf, tree):
    return [leaf for leaf in tf.contrib.framework.nest.flatten(tree) if hasattr(leaf, "dtype") and hasattr(leaf, "op")
            and not isinstance(leaf, tf.TensorArray)]  # fmt: skip


def _answers(tf, decoded, feed, loss=None, more=()):
    outputs, state, lengths = decoded
    leaves = [_flat(tf, outputs), _flat(tf, state), lengths, list(more)]
    gradients = [] if loss is None else tf.gradients(loss, tf.trainable_variables())
    gradients = [None if one is None else tf.convert_to_tensor(one) for one in gradients]
    with tf.Session() as session:
        fill_variables(tf, session)
        values = session.run(leaves + [[one for one in gradients if one is not None]], feed)
    return {"outputs": values[0], "state": values[1], "lengths": values[2], "more": values[3],
            "gradients": values[4],
            "unconnected": [one is None for one in gradients], "names": names(tf.trainable_variables())}  # fmt: skip


def _training(tf, cell_of=None, layer=True, time_major=False, differentiates=True, **options):
    s2s = tf.contrib.seq2seq
    x = tf.placeholder(tf.float32, [5, None, 3] if time_major else [None, 5, 3])
    n = tf.placeholder(tf.int32, [None])
    memory = tf.placeholder(tf.float32, [None, 4, 3])
    cell = tf.nn.rnn_cell.GRUCell(4)
    if cell_of is not None:
        cell = cell_of(tf, cell, memory)
    helper = s2s.TrainingHelper(x, n, time_major=time_major)
    output_layer = tf.layers.Dense(6) if layer else None
    decoder = s2s.BasicDecoder(cell, helper, cell.zero_state(3, tf.float32), output_layer)
    decoded = s2s.dynamic_decode(decoder, **options)
    values = numbers(1, 3, 5, 3)
    feed = {x: values.transpose(1, 0, 2) if time_major else values, n: [4, 2, 3], memory: numbers(2, 3, 4, 3)}
    output = decoded[0].rnn_output
    history = getattr(decoded[1], "alignment_history", ())
    more = [history.stack()] if hasattr(history, "stack") else []
    found = _answers(tf, decoded, feed, tf.reduce_sum(output * output) if differentiates else None, more)
    return dict(found, shapes=shapes(output, decoded[0].sample_id))


def training(tf):
    return _training(tf)


def training_imputed(tf):
    return _training(tf, impute_finished=True)


def training_time_major(tf):
    return _training(tf, layer=False, time_major=True, output_time_major=True, scope="other")


def training_limited(tf):
    return _training(tf, maximum_iterations=2)


def _bahdanau(tf, cell, memory, **options):
    mechanism = tf.contrib.seq2seq.BahdanauAttention(5, memory, memory_sequence_length=[4, 1, 3], **options)
    return tf.contrib.seq2seq.AttentionWrapper(cell, mechanism, attention_layer_size=4)


def bahdanau(tf):
    return _training(tf, _bahdanau)


def bahdanau_normalized(tf):
    return _training(tf, lambda tf, cell, memory: _bahdanau(tf, cell, memory, normalize=True), impute_finished=True)


def luong(tf):
    def wrapped(tf, cell, memory):
        mechanism = tf.contrib.seq2seq.LuongAttention(4, memory, scale=True)
        return tf.contrib.seq2seq.AttentionWrapper(cell, mechanism, alignment_history=True, output_attention=False)

    return _training(tf, wrapped)


def luong_hard(tf):
    def wrapped(tf, cell, memory):
        s2s = tf.contrib.seq2seq
        mechanism = s2s.LuongAttention(4, memory, [4, 1, 3], probability_fn=s2s.hardmax)
        return s2s.AttentionWrapper(cell, mechanism, cell_input_fn=lambda inputs, attention: inputs)

    # The choice of a place has no gradient.
    return _training(tf, wrapped, differentiates=False)


def two_mechanisms(tf):
    def wrapped(tf, cell, memory):
        s2s = tf.contrib.seq2seq
        both = [s2s.LuongAttention(4, memory), s2s.BahdanauAttention(5, memory)]
        return s2s.AttentionWrapper(cell, both, attention_layer_size=[2, 3])

    return _training(tf, wrapped)


def bahdanau_monotonic(tf):
    def wrapped(tf, cell, memory):
        mechanism = tf.contrib.seq2seq.BahdanauMonotonicAttention(5, memory, score_bias_init=-1.0, normalize=True)
        return tf.contrib.seq2seq.AttentionWrapper(cell, mechanism, attention_layer_size=4)

    return _training(tf, wrapped)


def luong_monotonic(tf):
    def wrapped(tf, cell, memory):
        mechanism = tf.contrib.seq2seq.LuongMonotonicAttention(4, memory, mode="recursive")
        return tf.contrib.seq2seq.AttentionWrapper(cell, mechanism)

    return _training(tf, wrapped)


def _inference(tf, helper, **options):
    s2s = tf.contrib.seq2seq
    cell = tf.nn.rnn_cell.LSTMCell(4)
    decoder = s2s.BasicDecoder(cell, helper, cell.zero_state(3, tf.float32), tf.layers.Dense(6, name="out"))
    decoded = s2s.dynamic_decode(decoder, **options)
    return _answers(tf, decoded, {}, tf.reduce_sum(decoded[0].rnn_output))


def greedy(tf):
    table = tf.get_variable("table", [6, 3])
    helper = tf.contrib.seq2seq.GreedyEmbeddingHelper(table, tf.fill([3], 1), 0)
    return _inference(tf, helper, maximum_iterations=6)


def inference_helper(tf):
    helper = tf.contrib.seq2seq.InferenceHelper(
        lambda outputs: outputs[:, :3], [3], tf.float32, tf.constant(numbers(3, 3, 3)),
        lambda samples: tf.reduce_sum(samples, 1) > 0.9, lambda samples: samples * 2)  # fmt: skip
    return _inference(tf, helper, maximum_iterations=4, impute_finished=True)


def custom_helper(tf):
    x = tf.constant(numbers(3, 3, 3))
    helper = tf.contrib.seq2seq.CustomHelper(
        lambda: (tf.zeros([3], tf.bool), x),
        lambda time, outputs, state: tf.cast(tf.argmax(outputs, 1), tf.int32),
        lambda time, outputs, state, sample_ids: (tf.equal(sample_ids, time), x * 0.5, state))  # fmt: skip
    return _inference(tf, helper, maximum_iterations=5)


def scheduled_never(tf):
    table = tf.get_variable("table", [6, 3])
    x = tf.constant(numbers(3, 3, 4, 3))
    helper = tf.contrib.seq2seq.ScheduledEmbeddingTrainingHelper(x, [4, 2, 3], table, 0.0)
    return _inference(tf, helper)


def scheduled_outputs(tf):
    x = tf.constant(numbers(3, 3, 4, 6))
    more = tf.constant(numbers(4, 3, 4, 2))
    helper = tf.contrib.seq2seq.ScheduledOutputTrainingHelper(x, [4, 2, 3], 1.0, auxiliary_inputs=more)
    return _inference(tf, helper)


def _beams(tf, attends=False, history=False, **options):
    s2s = tf.contrib.seq2seq
    table = tf.get_variable("table", [6, 3])
    cell = tf.nn.rnn_cell.GRUCell(4)
    state = s2s.tile_batch(tf.constant(numbers(5, 2, 4)), 3)
    if attends:
        memory = s2s.tile_batch(tf.placeholder_with_default(numbers(6, 2, 4, 3), [None, None, 3]), 3)
        lengths = s2s.tile_batch(tf.constant([4, 2]), 3)
        mechanism = s2s.LuongAttention(4, memory, lengths)
        cell = s2s.AttentionWrapper(cell, mechanism, attention_layer_size=5, alignment_history=history)
        state = cell.zero_state(6, tf.float32).clone(cell_state=state)
    layer = tf.layers.Dense(6, use_bias=False)
    decoder = s2s.BeamSearchDecoder(cell, table, tf.fill([2], 1), 0, state, 3, layer, **options)
    decoded = s2s.dynamic_decode(decoder, maximum_iterations=6)
    more = [decoded[1].cell_state.alignment_history] if history else []
    return dict(_answers(tf, decoded, {}, None, more), shapes=shapes(decoded[0].predicted_ids))


def beams(tf):
    return _beams(tf)


def beams_with_penalties(tf):
    return _beams(tf, attends=True, length_penalty_weight=0.7, coverage_penalty_weight=0.3)


def beams_with_history(tf):
    return _beams(tf, attends=True, history=True)


def own_decoder(tf):
    class Own(tf.contrib.seq2seq.Decoder):
        batch_size = 2
        output_size = tf.TensorShape([3])
        output_dtype = tf.float32

        def initialize(self, name=None):
            return tf.constant([False, False]), tf.ones([2, 3]), tf.zeros([2, 3])

        def step(self, time, inputs, state, name=None):
            w = tf.get_variable("w", [3, 3])
            new = tf.tanh(tf.matmul(inputs + state, w) + tf.cast(time, tf.float32))
            return new, new, inputs * 0.5, tf.stack([time >= 1, time >= 3])

    decoded = tf.contrib.seq2seq.dynamic_decode(Own(), impute_finished=True)
    return _answers(tf, decoded, {}, tf.reduce_sum(decoded[0]))


def losses(tf):
    s2s = tf.contrib.seq2seq
    logits = tf.constant(numbers(7, 2, 3, 4))
    targets, weights = tf.constant([[0, 1, 2], [3, 0, 1]]), tf.constant([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    found = [
        s2s.sequence_loss(logits, targets, weights),
        s2s.sequence_loss(logits, targets, weights, average_across_timesteps=False),
        s2s.sequence_loss(logits, targets, weights, average_across_batch=False),
        s2s.sequence_loss(logits, targets, weights, False, False),
        s2s.sequence_loss(logits, targets, weights, False, False, True, True),
        s2s.sequence_loss(logits, targets, weights, False, False, True),
    ]
    with tf.Session() as session:
        values = session.run([found, tf.gradients(found[0], logits)])
    return {"values": values, "shapes": shapes(*found),
            "error": error_of(lambda: s2s.sequence_loss(logits, targets, targets[0]))}  # fmt: skip


def small_functions(tf):
    s2s = tf.contrib.seq2seq
    p = tf.constant(np.abs(numbers(8, 2, 4)))
    before = tf.constant(np.eye(4, dtype=np.float32)[[0, 1]])
    found = [s2s.monotonic_attention(p, before, mode) for mode in ("recursive", "parallel", "hard")]
    found += [s2s.safe_cumprod(p, axis=1, exclusive=True), s2s.hardmax(p), s2s.tile_batch(p, 2)]
    ids, up = tf.constant([[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]]]), tf.constant([[[0, 0, 0]], [[0, 1, 1]], [[2, 1, 2]]])
    found.append(s2s.gather_tree(ids, up, [3], 10))
    with tf.Session() as session:
        values = session.run([found, tf.gradients(found[0], p)])
    return {"values": values, "shapes": shapes(*found[3:])}

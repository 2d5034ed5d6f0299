"""Programs with cells and unrolls."""

import numpy as np

from .helpers import error_of, fill_variables, names, numbers, shapes


def _unrolled(tf, cell, **options):
    x = tf.placeholder(tf.float32, [None, 5, 3])
    n = tf.placeholder(tf.int32, [None])
    outputs, state = tf.nn.dynamic_rnn(cell, x, n, dtype=tf.float32, **options)
    loss = tf.reduce_sum(outputs * outputs)
    leaves = tf.contrib.framework.nest.flatten(state) if isinstance(state, tuple) else [state]
    gradients = tf.gradients(loss, tf.trainable_variables() + [x])
    with tf.Session() as session:
        fill_variables(tf, session)
        feed = {x: numbers(1, 4, 5, 3), n: [5, 2, 0, 4]}
        values = session.run([outputs, leaves, gradients], feed)
    return {"outputs": values[0], "state": values[1], "gradients": values[2],
            "names": names(tf.trainable_variables()), "shapes": shapes(outputs, *leaves)}  # fmt: skip


def basic_rnn(tf):
    return _unrolled(tf, tf.nn.rnn_cell.BasicRNNCell(4))


def basic_rnn_relu(tf):
    return _unrolled(tf, tf.contrib.rnn.BasicRNNCell(num_units=4, activation=tf.nn.relu))


def basic_lstm(tf):
    return _unrolled(tf, tf.nn.rnn_cell.BasicLSTMCell(4, forget_bias=0.5))


def basic_lstm_one_tensor(tf):
    return _unrolled(tf, tf.nn.rnn_cell.BasicLSTMCell(4, state_is_tuple=False))


def lstm_with_all(tf):
    return _unrolled(tf, tf.nn.rnn_cell.LSTMCell(4, use_peepholes=True, cell_clip=0.3, num_proj=2, proj_clip=0.2))


def gru(tf):
    return _unrolled(tf, tf.nn.rnn_cell.GRUCell(4), scope="other")


def layer_norm_lstm(tf):
    return _unrolled(tf, tf.contrib.rnn.LayerNormBasicLSTMCell(4))


def ugrnn(tf):
    return _unrolled(tf, tf.contrib.rnn.UGRNNCell(4))


def nas(tf):
    return _unrolled(tf, tf.contrib.rnn.NASCell(4))


def coupled_gates(tf):
    return _unrolled(tf, tf.contrib.rnn.CoupledInputForgetGateLSTMCell(4, use_peepholes=True))


def multi(tf):
    cells = [tf.nn.rnn_cell.LSTMCell(4), tf.nn.rnn_cell.GRUCell(3)]
    return _unrolled(tf, tf.nn.rnn_cell.MultiRNNCell(cells))


def multi_in_one_tensor(tf):
    cells = [tf.nn.rnn_cell.GRUCell(4), tf.nn.rnn_cell.GRUCell(3)]
    return _unrolled(tf, tf.nn.rnn_cell.MultiRNNCell(cells, state_is_tuple=False))


def residual_and_dropout_of_nothing(tf):
    cell = tf.nn.rnn_cell.ResidualWrapper(tf.nn.rnn_cell.GRUCell(3))
    return _unrolled(tf, tf.nn.rnn_cell.DropoutWrapper(cell, output_keep_prob=1.0))


def output_projection(tf):
    return _unrolled(tf, tf.contrib.rnn.OutputProjectionWrapper(tf.nn.rnn_cell.GRUCell(4), output_size=2))


def input_projection(tf):
    return _unrolled(tf, tf.contrib.rnn.InputProjectionWrapper(tf.nn.rnn_cell.GRUCell(4), num_proj=2))


def own_cell_of_012(tf):
    class Own(tf.nn.rnn_cell.RNNCell):
        def __init__(self, size):
            self._size = size

        @property
        def state_size(self):
            return self._size

        @property
        def output_size(self):
            return self._size

        def __call__(self, inputs, state, scope=None):
            with tf.variable_scope(scope or type(self).__name__):
                w = tf.get_variable("W", [inputs.get_shape()[1].value, self._size])
                u = tf.get_variable("U", [self._size, self._size])
                new = tf.tanh(tf.matmul(inputs, w) + tf.matmul(state, u))
            return new, new

    return _unrolled(tf, Own(4))


def own_cell_of_14(tf):
    class Own(tf.nn.rnn_cell.RNNCell):
        def __init__(self, size, reuse=None, name=None):
            super(Own, self).__init__(_reuse=reuse, name=name)
            self._size = size

        @property
        def state_size(self):
            return (self._size, self._size)

        @property
        def output_size(self):
            return self._size

        def build(self, inputs_shape):
            self.w = self.add_variable("w", shape=[inputs_shape[-1].value + self._size, 2 * self._size])
            self.built = True

        def call(self, inputs, state):
            c, h = state
            both = tf.matmul(tf.concat([inputs, h], 1), self.w)
            gate, new = tf.split(both, 2, axis=1)
            c = tf.sigmoid(gate) * c + (1 - tf.sigmoid(gate)) * tf.tanh(new)
            return c, (c, tf.tanh(c))

    return _unrolled(tf, Own(4))


def own_cell_of_whole_batch(tf):
    """Its step joins the rows of a batch: nothing but a loop over whole batches is right."""

    class Own(tf.nn.rnn_cell.RNNCell):
        state_size = 3
        output_size = 3

        def call(self, inputs, state):
            new = state + inputs - tf.reduce_mean(inputs, 0, keepdims=True)
            return new, new

    x = tf.placeholder(tf.float32, [4, 5, 3])
    outputs, state = tf.nn.dynamic_rnn(Own(), x, [5, 2, 0, 4], dtype=tf.float32)
    gradient = tf.gradients(tf.reduce_sum(outputs * outputs), x)[0]
    with tf.Session() as session:
        return {"values": session.run([outputs, state, gradient], {x: numbers(1, 4, 5, 3)})}


def time_major_with_state(tf):
    cell = tf.nn.rnn_cell.BasicLSTMCell(4)
    x = tf.placeholder(tf.float32, [5, 2, 3])
    first = cell.zero_state(2, tf.float32)
    outputs, state = tf.nn.dynamic_rnn(cell, x, initial_state=first, time_major=True)
    with tf.Session() as session:
        fill_variables(tf, session)
        feed = {x: numbers(1, 5, 2, 3)}
        values = session.run(state, feed)
        feed[first] = values
        again = session.run([outputs, state], feed)
        feed = {x: numbers(1, 5, 2, 3), first.c: values.c, first.h: values.h}
        once_more = session.run(outputs, feed)
    return {"again": again, "once_more": once_more, "type": type(values).__name__, "shapes": shapes(outputs, state.c)}


def bidirectional(tf):
    x = tf.placeholder(tf.float32, [None, 5, 3])
    cells = [tf.nn.rnn_cell.BasicLSTMCell(4), tf.nn.rnn_cell.BasicLSTMCell(2)]
    outputs, states = tf.nn.bidirectional_dynamic_rnn(cells[0], cells[1], x, [5, 2, 0, 4], dtype=tf.float32)
    gradients = tf.gradients(tf.reduce_sum(tf.concat(outputs, 2)), tf.trainable_variables())
    with tf.Session() as session:
        fill_variables(tf, session)
        values = session.run([outputs, states, gradients], {x: numbers(1, 4, 5, 3)})
    return {"values": values, "names": names(tf.trainable_variables()), "shapes": shapes(*outputs)}


def stacked_bidirectional(tf):
    x = tf.placeholder(tf.float32, [None, 5, 3])
    fw = [tf.nn.rnn_cell.GRUCell(4), tf.nn.rnn_cell.GRUCell(2)]
    bw = [tf.nn.rnn_cell.GRUCell(4), tf.nn.rnn_cell.GRUCell(2)]
    values = tf.contrib.rnn.stack_bidirectional_dynamic_rnn(fw, bw, x, dtype=tf.float32, sequence_length=[5, 2, 0, 4])
    with tf.Session() as session:
        fill_variables(tf, session)
        found = session.run(values, {x: numbers(1, 4, 5, 3)})
    return {"values": found, "names": names(tf.trainable_variables())}


def static(tf):
    x = tf.placeholder(tf.float32, [None, 5, 3])
    cell = tf.nn.rnn_cell.BasicLSTMCell(4)
    outputs, state = tf.nn.static_rnn(cell, tf.unstack(x, 5, 1), dtype=tf.float32, sequence_length=[5, 2, 0, 4])
    gradients = tf.gradients(tf.reduce_sum(outputs[-1]) + tf.reduce_sum(state.c), tf.trainable_variables())
    with tf.Session() as session:
        fill_variables(tf, session)
        values = session.run([outputs, state, gradients], {x: numbers(1, 4, 5, 3)})
    return {"values": values, "names": names(tf.trainable_variables()), "shapes": shapes(outputs[0], state.c)}


def static_both_ways(tf):
    x = tf.placeholder(tf.float32, [None, 5, 3])
    cells = [tf.nn.rnn_cell.GRUCell(4), tf.nn.rnn_cell.GRUCell(2)]
    values = tf.nn.static_bidirectional_rnn(cells[0], cells[1], tf.unstack(x, 5, 1), dtype=tf.float32)
    with tf.Session() as session:
        fill_variables(tf, session)
        found = session.run(list(values), {x: numbers(1, 4, 5, 3)})
    return {"values": found, "names": names(tf.trainable_variables())}


def raw(tf):
    inputs = tf.placeholder(tf.float32, [5, 4, 3])
    rows = tf.TensorArray(tf.float32, size=5).unstack(inputs)
    lengths = tf.constant([5, 2, 1, 4])
    cell = tf.nn.rnn_cell.LSTMCell(4)

    def loop_fn(time, cell_output, cell_state, loop_state):
        emit = cell_output
        state = cell.zero_state(4, tf.float32) if cell_output is None else cell_state
        finished = time >= lengths
        done = tf.reduce_all(finished)
        following = tf.cond(done, lambda: tf.zeros([4, 3], dtype=tf.float32), lambda: rows.read(time))
        return finished, following, state, emit, None

    outputs, state, _ = tf.nn.raw_rnn(cell, loop_fn)
    stacked = outputs.stack()
    gradients = tf.gradients(tf.reduce_sum(stacked), tf.trainable_variables())
    with tf.Session() as session:
        fill_variables(tf, session)
        values = session.run([stacked, state, gradients], {inputs: numbers(1, 5, 4, 3)})
    return {"values": values, "names": names(tf.trainable_variables())}


def two_unrolls_share(tf):
    x = tf.placeholder(tf.float32, [None, 5, 3])
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        first, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(4), x, dtype=tf.float32)
        second, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(4), x * 2, dtype=tf.float32)
    with tf.Session() as session:
        fill_variables(tf, session)
        values = session.run([first, second], {x: numbers(1, 2, 5, 3)})
    return {"values": values, "names": names(tf.trainable_variables())}


def errors(tf):
    x = tf.placeholder(tf.float32, [None, 5, 3])
    cell = tf.nn.rnn_cell.BasicLSTMCell(4)
    return {
        "no_dtype": error_of(lambda: tf.nn.dynamic_rnn(cell, x)),
        "no_cell": error_of(lambda: tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicLSTMCell, x, dtype=tf.float32)),
        "lengths": error_of(lambda: tf.nn.dynamic_rnn(cell, x, [[1]], dtype=tf.float32)),
        "static": error_of(lambda: tf.nn.static_rnn(cell, x, dtype=tf.float32)),
        "multi": error_of(lambda: tf.nn.rnn_cell.MultiRNNCell([])),
        "width": error_of(
            lambda: tf.nn.dynamic_rnn(
                tf.nn.rnn_cell.GRUCell(2), tf.placeholder(tf.float32, [None, 5, None]), dtype=tf.float32
            )
        ),
    }


def zero_states(tf):
    cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.LSTMCell(3), tf.nn.rnn_cell.GRUCell(2)])
    batch = tf.placeholder(tf.int32, [])
    known, unknown = cell.zero_state(2, tf.float32), cell.zero_state(batch, tf.float32)
    with tf.Session() as session:
        values = session.run([known, unknown], {batch: 3})
    return {"values": values, "shapes": shapes(known[0].c, known[1], unknown[0].h), "sizes": str(cell.state_size),
            "dtype": np.dtype(values[0][1].dtype).name}  # fmt: skip


def highway(tf):
    return _unrolled(tf, tf.contrib.rnn.HighwayWrapper(tf.nn.rnn_cell.GRUCell(3), couple_carry_transform_gates=False))


def one_cell_in_every_layer(tf):
    return _unrolled(tf, tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.GRUCell(3)] * 2))


def steps_by_hand(tf):
    x = tf.placeholder(tf.float32, [2, 4, 3])
    cell = tf.nn.rnn_cell.BasicLSTMCell(5, state_is_tuple=True)
    state, outputs = cell.zero_state(2, tf.float32), []
    with tf.variable_scope("RNN"):
        for step in range(4):
            if step > 0:
                tf.get_variable_scope().reuse_variables()
            output, state = cell(x[:, step, :], state)
            outputs.append(output)
    joined = tf.reshape(tf.concat(outputs, 1), [-1, 5])
    gradients = tf.gradients(tf.reduce_sum(joined), tf.trainable_variables())
    with tf.Session() as session:
        fill_variables(tf, session)
        values = session.run([joined, state, gradients], {x: numbers(1, 2, 4, 3)})
    return {"values": values, "names": names(tf.trainable_variables()), "shape": str(joined.shape)}


def nested_inputs(tf):
    class Own(tf.nn.rnn_cell.RNNCell):
        state_size = 3
        output_size = (3, 2)

        def call(self, inputs, state):
            first, second = inputs
            w = tf.get_variable("w", [2, 3])
            new = tf.tanh(first + tf.matmul(second, w) + state)
            return (new, second * 2), new

    a, b = tf.placeholder(tf.float32, [None, 4, 3]), tf.placeholder(tf.float32, [None, 4, 2])
    outputs, state = tf.nn.dynamic_rnn(Own(), (a, b), [4, 1, 3], dtype=tf.float32)
    gradients = tf.gradients(tf.reduce_sum(outputs[0]), [a, b])
    with tf.Session() as session:
        fill_variables(tf, session)
        values = session.run([outputs, state, gradients], {a: numbers(1, 3, 4, 3), b: numbers(2, 3, 4, 2)})
    return {"values": values, "names": names(tf.trainable_variables())}


def loop_in_a_cell(tf):
    class Own(tf.nn.rnn_cell.RNNCell):
        state_size = 3
        output_size = 3

        def call(self, inputs, state):
            w = tf.get_variable("w", [3, 3])
            new = tf.while_loop(
                lambda i, h: i < 2, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, w) + inputs)), (0, state)
            )[1]
            return tf.cond(tf.reduce_sum(new) > 0, lambda: new, lambda: new * 2), new

    x = tf.placeholder(tf.float32, [None, 4, 3])
    outputs, state = tf.nn.dynamic_rnn(Own(), x, dtype=tf.float32)
    gradients = tf.gradients(tf.reduce_sum(outputs), tf.trainable_variables())
    with tf.Session() as session:
        fill_variables(tf, session)
        values = session.run([outputs, state, gradients], {x: numbers(1, 2, 4, 3)})
    return {"values": values, "names": names(tf.trainable_variables())}

"""The LSTM in TensorFlow: by its fused operator, and as a loop over time steps."""

import numpy as np
import tensorflow as tf

from experiments.lstm import weights

HIDDEN = weights.HIDDEN


def layer_weights(layers):
    """Returns for each layer the matrices (inputs, 4h) and (h, 4h) and the sum of the biases."""
    return [(np.ascontiguousarray(w_ih.T), np.ascontiguousarray(w_hh.T), b_ih + b_hh)
            for w_ih, w_hh, b_ih, b_hh in weights.by_layer(layers)]


def make_fused(layers):
    """Returns x (n, 1, 300) → y (n, 1, 512) by BlockLSTMV2, one operator a layer."""
    matrices = [(tf.constant(np.concatenate((w_ih, w_hh))), tf.constant(bias))
                for w_ih, w_hh, bias in layer_weights(layers)]
    zero, peephole = tf.zeros((1, HIDDEN)), tf.zeros((HIDDEN,))

    def forward(x):
        for matrix, bias in matrices:
            x = tf.raw_ops.BlockLSTMV2(
                seq_len_max=tf.shape(x, out_type=tf.int64)[0], x=x, cs_prev=zero, h_prev=zero,
                w=matrix, wci=peephole, wcf=peephole, wco=peephole, b=bias, cell_clip=0,
                use_peephole=False).h
        return x

    return forward


def make_loop(layers):
    """Returns the same as tf.while_loop over the steps, layer after layer."""
    matrices = [tuple(tf.constant(value) for value in values) for values in layer_weights(layers)]
    zero = tf.zeros((1, HIDDEN))

    def layer(x, w_ih, w_hh, bias):
        n = tf.shape(x)[0]

        def step(i, h, c, rows):
            gates = tf.matmul(x[i], w_ih) + tf.matmul(h, w_hh) + bias
            i_gate, f_gate, g_gate, o_gate = tf.split(gates, 4, 1)
            c = tf.sigmoid(f_gate) * c + tf.sigmoid(i_gate) * tf.tanh(g_gate)
            h = tf.sigmoid(o_gate) * tf.tanh(c)
            return i + 1, h, c, rows.write(i, h)

        rows = tf.TensorArray(tf.float32, n, element_shape=(1, HIDDEN))
        return tf.while_loop(lambda i, *_: i < n, step, (0, zero, zero, rows))[3].stack()

    def forward(x):
        for values in matrices:
            x = layer(x, *values)
        return x

    return forward

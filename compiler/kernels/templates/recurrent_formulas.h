// Gates and states of LSTM and GRU cells as values of kernel IR. Templates of recurrent cells have
// loads, stores and the names of what lies between for themselves, and these in common.
#pragma once

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kernels {

kir::ValueRef sigmoid(kir::ValueRef x);
kir::ValueRef tanh_of(kir::ValueRef x);

// c' = f * c + i * g
kir::ValueRef lstm_state(kir::ValueRef f, kir::ValueRef c, kir::ValueRef i, kir::ValueRef g);
// h' = o * tanh(c')
kir::ValueRef lstm_output(kir::ValueRef o, kir::ValueRef c);

// n = tanh(r * recurrent + input), where the reset gate r applies behind the product.
kir::ValueRef gru_candidate(kir::ValueRef r, kir::ValueRef recurrent, kir::ValueRef input);
// h' = (1 - z) * n + z * h = n + z * (h - n)
kir::ValueRef gru_blend(kir::ValueRef z, kir::ValueRef n, kir::ValueRef h);

}  // namespace nimble::kernels

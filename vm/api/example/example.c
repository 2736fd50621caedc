/* Runs a model on a tensor: load, look at its signature, run without copies, handle failures. */
#include <nimble.h>
#include <stdio.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, nimble_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: %s MODEL\n", argv[0]), 2;

  nimble_load_options load = NIMBLE_LOAD_OPTIONS_INIT;
  load.trust = 1; /* native code of this file may run */
  nimble_model* model = NULL;
  if (nimble_load(argv[1], &load, &model) != NIMBLE_OK) return fail("load");

  nimble_port port = NIMBLE_PORT_INIT;
  if (nimble_model_input(model, 0, 0, &port) != NIMBLE_OK) return fail("input");
  printf("%s takes %s: %s (%s, %s)\n", nimble_model_entry_name(model, 0), port.name,
         nimble_dtype_name(port.dtype), port.dims[0], port.dims[1]);

  nimble_session* session = NULL;
  if (nimble_session_create(model, NULL, &session) != NIMBLE_OK) return fail("session");

  float x[3][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};
  const int64_t shape[] = {3, 4};
  nimble_tensor input = NIMBLE_TENSOR_INIT, output = NIMBLE_TENSOR_INIT;
  input.data = x;
  input.shape = shape;
  input.rank = 2;
  input.dtype = NIMBLE_F32;
  if (nimble_session_run(session, NULL, &port.name, &input, 1, &output, 1) != NIMBLE_OK)
    return fail("run");
  printf("y has shape (%d, %d), y[2][3] = %g\n", (int)output.shape[0], (int)output.shape[1],
         ((const float*)output.data)[11]);

  nimble_tensor_release(&output);
  nimble_session_destroy(session);
  nimble_model_destroy(model);
  return 0;
}

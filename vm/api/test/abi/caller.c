/* A program as it might have been built against NIMBLE_HEADER: it uses every struct, whose sizes
 * are those of that header. `caller MODEL`, the model of test/model_writer; exits with the line of
 * the first thing that is wrong. */
#include NIMBLE_HEADER
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                     \
  if (!(condition)) {                                                                        \
    fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, nimble_last_error()); \
    return 1;                                                                                \
  }
#define OK(call) CHECK((call) == NIMBLE_OK)

/* What lies behind a struct of the caller's is not the library's to touch. */
#define GUARDED(type, init)               \
  struct {                                \
    type it;                              \
    unsigned char guard[64];              \
  } type##_guarded = {init, {0}};         \
  memset(type##_guarded.guard, 0xab, 64); \
  type* type##_ = &type##_guarded.it
#define UNTOUCHED(type)                                              \
  do {                                                               \
    int i;                                                           \
    CHECK(type##_->struct_size == sizeof(type));                     \
    for (i = 0; i < 64; ++i) CHECK(type##_guarded.guard[i] == 0xab); \
  } while (0)

int main(int argc, char** argv) {
  static const float x[2][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  static const int64_t shape[] = {2, 4};
  float y[8];
  nimble_model* model = NULL;
  nimble_session* session = NULL;
  nimble_value *value = NULL, *fields = NULL;
  nimble_tensor in = NIMBLE_TENSOR_INIT, both[2] = {NIMBLE_TENSOR_INIT, NIMBLE_TENSOR_INIT};
  nimble_status status;
  int i;
  GUARDED(nimble_load_options, NIMBLE_LOAD_OPTIONS_INIT);
  GUARDED(nimble_session_options, NIMBLE_SESSION_OPTIONS_INIT);
  GUARDED(nimble_port, NIMBLE_PORT_INIT);
  GUARDED(nimble_type, NIMBLE_TYPE_INIT);
  GUARDED(nimble_constructor, NIMBLE_CONSTRUCTOR_INIT);
  GUARDED(nimble_run_position, NIMBLE_RUN_POSITION_INIT);
  GUARDED(nimble_memory_stats, NIMBLE_MEMORY_STATS_INIT);
  GUARDED(nimble_tensor, NIMBLE_TENSOR_INIT);

  CHECK(argc == 2);
  CHECK(nimble_api_version() >= NIMBLE_API_VERSION);
  nimble_load_options_->trust = 1;
  OK(nimble_load(argv[1], nimble_load_options_, &model));
  UNTOUCHED(nimble_load_options);
  nimble_session_options_->threads = 1;
  nimble_session_options_->profile = 1;
  OK(nimble_session_create(model, nimble_session_options_, &session));
  UNTOUCHED(nimble_session_options);
  CHECK(nimble_session_threads(session) == 1);

  OK(nimble_model_input(model, 0, 0, nimble_port_));
  UNTOUCHED(nimble_port);
  CHECK(strcmp(nimble_port_->name, "x") == 0 && nimble_port_->extents[1] == 4);
  CHECK(nimble_model_type(model, 0, nimble_type_) == NIMBLE_NOT_FOUND);
  CHECK(nimble_model_constructor(model, 0, 0, nimble_constructor_) == NIMBLE_NOT_FOUND);
  UNTOUCHED(nimble_type);
  UNTOUCHED(nimble_constructor);

  in.data = (void*)x;
  in.shape = shape;
  in.rank = 2;
  in.dtype = NIMBLE_F32;
  /* An output of the library's, then one in memory of the caller's. */
  for (i = 0; i < 2; ++i) {
    if (i == 1) nimble_tensor_->data = y, nimble_tensor_->capacity = sizeof y;
    OK(nimble_session_run(session, NULL, NULL, &in, 1, nimble_tensor_, 1));
    UNTOUCHED(nimble_tensor);
    CHECK(memcmp(nimble_tensor_->data, x, sizeof x) == 0 && nimble_tensor_->shape[0] == 2);
    CHECK(nimble_tensor_->release != NULL);
    nimble_tensor_release(nimble_tensor_);
    UNTOUCHED(nimble_tensor);
  }
  /* Arrays: the elements lie as far apart as they are large for the caller. */
  both[0] = both[1] = in;
  CHECK(nimble_session_run(session, NULL, NULL, both, 2, nimble_tensor_, 1) ==
        NIMBLE_INVALID_ARGUMENT);
  OK(nimble_session_start(session, NULL, NULL, &in, 1));
  OK(nimble_session_position(session, nimble_run_position_));
  UNTOUCHED(nimble_run_position);
  CHECK(nimble_run_position_->state == NIMBLE_RUN_SUSPENDED);
  CHECK(strcmp(nimble_run_position_->function, "main") == 0);
  while ((status = nimble_session_resume(session, 2, nimble_tensor_, 1)) == NIMBLE_SUSPENDED) {
  }
  OK(status);
  nimble_tensor_release(nimble_tensor_);
  OK(nimble_session_memory(session, nimble_memory_stats_));
  UNTOUCHED(nimble_memory_stats);
  CHECK(nimble_memory_stats_->allocations > 0);
  CHECK(strstr(nimble_session_profile_json(session), "\"runs\":3") != NULL);

  OK(nimble_value_from_tensor(&in, &value));
  OK(nimble_value_from_fields(0, (const nimble_value* const*)&value, 1, &fields));
  OK(nimble_value_tensor(nimble_value_field(fields, 0), nimble_tensor_));
  UNTOUCHED(nimble_tensor);
  CHECK(memcmp(nimble_tensor_->data, x, sizeof x) == 0);
  nimble_value_release(value);
  nimble_value_release(fields);
  nimble_session_destroy(session);
  nimble_model_destroy(model);
  return 0;
}

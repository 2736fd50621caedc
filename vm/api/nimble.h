/* The C interface of nimble's runtime: load a compiled model, make sessions, run them without
 * copies, cancel them.
 *
 *   nimble_model* model;                nimble_load("m.nimble", &options, &model);
 *   nimble_session* session;            nimble_session_create(model, NULL, &session);
 *   nimble_session_run(session, NULL, names, inputs, 2, outputs, 1);
 *   ... outputs[0].data, .shape, .rank ...
 *   nimble_tensor_release(&outputs[0]); nimble_session_destroy(session);
 * nimble_model_destroy(model);
 *
 * Rules that hold throughout:
 *  - Every function that can fail returns a nimble_status; nimble_last_error() then tells, in one
 *    line, the place, the problem and the remedy. Nothing throws, nothing prints.
 *  - Structs that cross the border begin with `struct_size`: set it to sizeof the struct that the
 *    caller was compiled with (NIMBLE_*_INIT do). Fields are only ever appended, and 0 is the
 *    default of each. A newer library takes the default of what an older caller does not know of,
 *    and tells it nothing more. An older library refuses what it does not know of (as
 *    NIMBLE_UNSUPPORTED) where a newer caller sets it to other than 0, and leaves it as it is
 *    where it is the library's to fill in.
 *  - Handles are opaque. A model may be shared by threads. A session runs one call at a time
 *    (a second concurrent run on it fails); several sessions of a model may run at once. Every
 *    other function on a session may be called from any thread at any time.
 *  - Text returned by queries belongs to its handle and lives as long, unless said otherwise.
 *  - All text is UTF-8, all sizes are in bytes unless said otherwise.
 *  - The child of a fork() may go on with models, values, outputs and sessions; the threads that
 *    it lacks are started anew when a kernel needs them. A session that another thread was running
 *    at the time of the fork is lost in the child: it stays busy, and destroying it frees nothing.
 */
#ifndef NIMBLE_VM_API_NIMBLE_H_
#define NIMBLE_VM_API_NIMBLE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define NIMBLE_API __attribute__((visibility("default")))
#else
#define NIMBLE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* 2: start, resume, suspend, abandon, state; 3: types; 4: numbers of runs; 5: counts of shapes */
#define NIMBLE_API_VERSION 5

/* The version of the interface that the library implements; compare with NIMBLE_API_VERSION. */
NIMBLE_API uint32_t nimble_api_version(void);
/* "0.1.0" */
NIMBLE_API const char* nimble_version(void);

typedef int32_t nimble_status;
enum {
  NIMBLE_OK = 0,
  NIMBLE_INVALID_ARGUMENT = 1, /* wrong shape, dtype, name, option */
  NIMBLE_NOT_FOUND = 2,        /* no such file, input or entry point */
  NIMBLE_CORRUPT = 3,          /* damaged or malformed file */
  NIMBLE_INCOMPATIBLE = 4,     /* compiled for another CPU, newer format */
  NIMBLE_UNSUPPORTED = 5,
  NIMBLE_EXHAUSTED = 6, /* fuel, memory or depth */
  NIMBLE_CANCELLED = 7,
  NIMBLE_IO = 8,
  NIMBLE_FATAL = 9, /* the program stopped itself, or a run-time check failed */
  NIMBLE_INTERNAL = 10,
  NIMBLE_SUSPENDED = 11 /* no failure: nimble_session_resume has more to do */
};
/* "invalid argument", …; never NULL. */
NIMBLE_API const char* nimble_status_name(nimble_status status);

/* The calling thread's last failure in one line; "" if none yet. Valid until this thread's next
 * failing call. */
NIMBLE_API const char* nimble_last_error(void);

typedef int32_t nimble_dtype;
enum {
  NIMBLE_BOOL = 0,
  NIMBLE_I8 = 1,
  NIMBLE_I16 = 2,
  NIMBLE_I32 = 3,
  NIMBLE_I64 = 4,
  NIMBLE_U8 = 5,
  NIMBLE_U16 = 6,
  NIMBLE_U32 = 7,
  NIMBLE_U64 = 8,
  NIMBLE_F16 = 9,
  NIMBLE_BF16 = 10,
  NIMBLE_F32 = 11,
  NIMBLE_F64 = 12
};
/* "f32", …; NULL if `dtype` is none. */
NIMBLE_API const char* nimble_dtype_name(nimble_dtype dtype);
/* Bytes of an element; 0 if `dtype` is none. */
NIMBLE_API size_t nimble_dtype_size(nimble_dtype dtype);

/* A tensor, in the manner of DLPack.
 * As an input it is borrowed for the length of the call and never written. Dense row-major data
 * aligned to its element is used in place; anything else is copied first.
 * As an output, before the call:
 *  - data == NULL: the library gives memory of its own. The tensor (data, shape and strides) then
 *    belongs to the caller until nimble_tensor_release, also beyond the session's end. A later
 *    run does not touch it. Two outputs of one run may share memory if the model returns the same
 *    value twice.
 *  - data != NULL: the result is written densely to data + byte_offset; `capacity` says how many
 *    bytes are there, too few is NIMBLE_INVALID_ARGUMENT. The caller keeps the memory;
 *    nimble_tensor_release then frees only the shape. */
typedef struct nimble_tensor nimble_tensor;
struct nimble_tensor {
  uint64_t struct_size;
  void* data;
  uint64_t byte_offset;   /* of the first element, from data */
  uint64_t capacity;      /* bytes at data + byte_offset; 0 if not known (inputs) */
  const int64_t* shape;   /* `rank` extents */
  const int64_t* strides; /* in elements; NULL: dense row-major */
  int32_t rank;
  nimble_dtype dtype;
  int32_t device; /* 0: CPU */
  int32_t reserved;
  void* owner;                          /* the library's; NULL in tensors of the caller's */
  void (*release)(nimble_tensor* self); /* frees what `owner` holds; NULL if nothing */
};
#define NIMBLE_TENSOR_INIT \
  { sizeof(nimble_tensor), NULL, 0, 0, NULL, NULL, 0, 0, 0, 0, NULL, NULL }
/* Calls `release` once and clears the tensor's pointers; safe on NULL, on a cleared tensor and
 * from any thread. */
NIMBLE_API void nimble_tensor_release(nimble_tensor* tensor);

/* ---- values of data types -------------------------------------------------------------- */

/* A tensor, or a tag (the number of a constructor in its data type; 0 for a tuple) with fields.
 * Immutable, counted, independent of models and sessions; any thread may use it. */
typedef struct nimble_value nimble_value;

/* A copy of a tensor. */
NIMBLE_API nimble_status nimble_value_from_tensor(const nimble_tensor* tensor,
                                                  nimble_value** value);
/* Takes its own references to `fields`. */
NIMBLE_API nimble_status nimble_value_from_fields(int64_t tag, const nimble_value* const* fields,
                                                  size_t count, nimble_value** value);
NIMBLE_API void nimble_value_retain(const nimble_value* value);
/* NULL is fine. The parts of a value go with the last reference to them, without recursion. */
NIMBLE_API void nimble_value_release(const nimble_value* value);
/* -1 of a tensor. */
NIMBLE_API int64_t nimble_value_tag(const nimble_value* value);
NIMBLE_API size_t nimble_value_field_count(const nimble_value* value);
/* NULL if there is no such field. Belongs to `value`. */
NIMBLE_API const nimble_value* nimble_value_field(const nimble_value* value, size_t index);
/* Describes a tensor; data and shape belong to `value`. */
NIMBLE_API nimble_status nimble_value_tensor(const nimble_value* value, nimble_tensor* tensor);

/* ---- models ---------------------------------------------------------------------------- */

typedef struct nimble_model nimble_model;

typedef struct nimble_load_options {
  uint64_t struct_size;
  /* Native code of the file runs with the rights of the process and cannot be verified. It is
   * loaded only if this is 1: set it for files whose origin you trust. With 0 (the default) the
   * portable form of the kernels runs instead: verified, every access checked, independent of the
   * CPU, and some ten to hundred times slower. Files compiled without it are refused then. */
  int32_t trust;
  /* 1: write /tmp/perf-<pid>.map so that `perf` names the kernels (also: NIMBLE_PERF_MAP=1). */
  int32_t perf_map;
  /* What loading may take; beyond a limit it returns NIMBLE_EXHAUSTED. 0: the default, UINT64_MAX:
   * no limit. */
  uint64_t memory_limit;    /* bytes of the file (unless mapped), what is decoded of it and copies
                               of constants; by default 4 GiB, with trust no limit */
  uint64_t constants_limit; /* bytes of all constants; by default 2 GiB, with trust no limit */
  uint64_t verification_limit; /* steps of the verifier; by default so many for each byte of the
                                  file */
} nimble_load_options;
#define NIMBLE_LOAD_OPTIONS_INIT \
  { sizeof(nimble_load_options), 0, 0, 0, 0, 0 }

/* Reads, checks and verifies a .nimble file. `options` may be NULL (defaults). With trust the file
 * is mapped: replace it by renaming while models live, never write into it. Without, it is read
 * into memory before it is checked, and may change or go at any time. */
NIMBLE_API nimble_status nimble_load(const char* path, const nimble_load_options* options,
                                     nimble_model** model);
/* The same from memory. The bytes are copied before they are checked, with trust or without: they
 * stay the caller's, who may change or free them once the call returns. */
NIMBLE_API nimble_status nimble_load_memory(const void* bytes, size_t size,
                                            const nimble_load_options* options,
                                            nimble_model** model);
/* Sessions and outputs of the model stay valid. NULL is fine. */
NIMBLE_API void nimble_model_destroy(nimble_model* model);

/* Entry points; entry 0 is the default one. */
NIMBLE_API int32_t nimble_model_entry_count(const nimble_model* model);
NIMBLE_API const char* nimble_model_entry_name(const nimble_model* model, int32_t entry);
/* The entry's index, -1 if there is none of that name; NULL names the default one. */
NIMBLE_API int32_t nimble_model_find_entry(const nimble_model* model, const char* name);
NIMBLE_API int32_t nimble_model_input_count(const nimble_model* model, int32_t entry);
NIMBLE_API int32_t nimble_model_output_count(const nimble_model* model, int32_t entry);

/* What an entry point says of an input or output. */
typedef struct nimble_port {
  uint64_t struct_size;
  const char* name;
  nimble_dtype dtype;
  int32_t rank;
  /* One text for each dim: "8", "n", "n + m", "?". Equal texts but "?" are equal extents. */
  const char* const* dims;
  const int64_t* extents;   /* the same where constant, else -1 */
  const char* default_fill; /* "": required; "zeros" or "ones": what it is if not given */
  /* "": a tensor; else the name of its type, "List[Tensor[(n), f32]]": then it is a nimble_value,
   * and the fields above tell nothing. */
  const char* type;
  int32_t type_index; /* its type for nimble_model_type; -1 of a tensor */
  int32_t reserved;
} nimble_port;
#define NIMBLE_PORT_INIT \
  { sizeof(nimble_port), NULL, 0, 0, NULL, NULL, NULL, NULL, -1, 0 }
NIMBLE_API nimble_status nimble_model_input(const nimble_model* model, int32_t entry, int32_t index,
                                            nimble_port* port);
NIMBLE_API nimble_status nimble_model_output(const nimble_model* model, int32_t entry,
                                             int32_t index, nimble_port* port);

typedef int32_t nimble_type_kind;
enum { NIMBLE_TYPE_TENSOR = 0, NIMBLE_TYPE_TUPLE = 1, NIMBLE_TYPE_DATA = 2 };

/* What a part of a value must look like. Types refer to each other by index, and may be recursive:
 * Tree is { Leaf(Tensor[(2), f32]); Node(Tree, Tree) }. */
typedef struct nimble_type {
  uint64_t struct_size;
  const char* name; /* "List[Tensor[(n), f32]]" */
  nimble_type_kind kind;
  /* Of a tensor, as in nimble_port. */
  nimble_dtype dtype;
  int32_t rank;
  int32_t constructor_count; /* of a tuple: 1; of a tensor: 0. Tags count them from 0. */
  const char* const* dims;
  const int64_t* extents;
} nimble_type;
#define NIMBLE_TYPE_INIT \
  { sizeof(nimble_type), NULL, 0, 0, 0, 0, NULL, NULL }
/* Types are numbered from 0. */
NIMBLE_API int32_t nimble_model_type_count(const nimble_model* model);
NIMBLE_API nimble_status nimble_model_type(const nimble_model* model, int32_t index,
                                           nimble_type* type);

typedef struct nimble_constructor {
  uint64_t struct_size;
  const char* name;       /* "Node"; "" of a tuple */
  const uint32_t* fields; /* the types of its `field_count` fields */
  uint64_t field_count;
} nimble_constructor;
#define NIMBLE_CONSTRUCTOR_INIT \
  { sizeof(nimble_constructor), NULL, NULL, 0 }
NIMBLE_API nimble_status nimble_model_constructor(const nimble_model* model, int32_t type,
                                                  int64_t tag, nimble_constructor* constructor);

/* The tag of a constructor, by its name, in the data types of the model's entry points; -1 if none
 * of them has it. */
NIMBLE_API int64_t nimble_model_find_tag(const nimble_model* model, const char* constructor);

/* What the loader chose, as JSON: target, no_native, available and replaced vendor implementations,
 * bytes of constants, what vendors' routines keep beside them (vendor_bytes) and for how many calls
 * (vendor_calls), provenance, notes. */
NIMBLE_API const char* nimble_model_info(const nimble_model* model);

/* ---- sessions -------------------------------------------------------------------------- */

typedef struct nimble_session nimble_session;

typedef struct nimble_session_options {
  uint64_t struct_size;
  /* 0: as many as the process may use (affinity and cgroup). There may be fewer where the system
   * starts no more (a limit of processes): nimble_session_threads tells. */
  int32_t threads;
  int32_t pin; /* 1: bind worker threads, and the thread that runs, to cores */
  /* Limits of a run. Beyond one it returns NIMBLE_EXHAUSTED; the session stays usable. */
  uint64_t memory_limit; /* bytes of tensors, scratch, registers and frames, on each device; 0:
                            none */
  uint64_t fuel;         /* steps of one run; 0: no limit. An instruction is one; what does the work
                            of many (clearing, copying, calls of many registers, host operators,
                            portable kernels) takes as many; a native kernel's call is one */
  uint32_t depth;        /* calls nested inside the entry point; 0: 100000 */
  uint32_t profile;      /* 1: profile from the start */
  uint32_t record_shapes; /* 1: count the runs of each shape, for nimble_session_shapes_json
                             (version 5) */
  uint32_t trace; /* profile, and keep so many instructions (at most 2,000,000) in their order, for
                     nimble_session_trace_json; 0: none (version 5) */
} nimble_session_options;
#define NIMBLE_SESSION_OPTIONS_INIT \
  { sizeof(nimble_session_options), 0, 0, 0, 0, 0, 0, 0, 0 }

NIMBLE_API nimble_status nimble_session_create(nimble_model* model,
                                               const nimble_session_options* options,
                                               nimble_session** session);
/* Outputs of the session stay valid. A suspended run is dropped; one in progress on another thread
 * is cancelled, and the session's memory goes when that call returns. No other call on the session
 * may follow, nor be in progress. NULL is fine. */
NIMBLE_API void nimble_session_destroy(nimble_session* session);

/* Runs entry point `entry` (NULL: the default one).
 * `input_names[i]` names inputs[i]; input_names == NULL: inputs are given in the entry's order.
 * Inputs with a default may be left out. `outputs` are in the entry's order; `output_count` may
 * be fewer than the entry's outputs, the rest is dropped. Elements of the arrays lie
 * inputs[0].struct_size (outputs[0].struct_size) bytes apart. After a failure no output is set. */
NIMBLE_API nimble_status nimble_session_run(nimble_session* session, const char* entry,
                                            const char* const* input_names,
                                            const nimble_tensor* inputs, size_t input_count,
                                            nimble_tensor* outputs, size_t output_count);

/* The same on values, for entry points that take or return data types; a tensor is a value too.
 * Inputs must have the types of their ports, all the way down: tags, numbers of fields, dtypes,
 * ranks and extents are checked, and refused as NIMBLE_INVALID_ARGUMENT. outputs[i] is set to a
 * reference that the caller owns. */
NIMBLE_API nimble_status nimble_session_run_values(nimble_session* session, const char* entry,
                                                   const char* const* input_names,
                                                   const nimble_value* const* inputs,
                                                   size_t input_count, nimble_value** outputs,
                                                   size_t output_count);

/* Stops the session's run in progress: that call then returns NIMBLE_CANCELLED, and the session
 * is ready for the next. The run looks for this before each jump, call, return and kernel; a kernel
 * that has begun is finished first. A run that is suspended fails when it is resumed. Without a run
 * nothing happens. It is the run in progress when the request comes that is hit: who means a run
 * that may be over by then names it, with nimble_cancel_run. May be called from any thread and from
 * a signal handler. */
NIMBLE_API void nimble_cancel(nimble_session* session);
/* The number of the run that the next nimble_session_run, _run_values or _start begins: 1, 2, …
 * (a call that finds the session busy begins none; one that fails later did). Ask on the thread
 * that will run, before it does, and hand the number to whoever may cancel. 0 if session is NULL.
 */
NIMBLE_API uint64_t nimble_session_next_run(const nimble_session* session);
/* nimble_cancel for the run of that number alone, however late or early it comes: once the run is
 * over nothing happens, and the run that is next then fails as soon as it begins. */
NIMBLE_API void nimble_cancel_run(nimble_session* session, uint64_t run);

/* ---- prepared calls ------------------------------------------------------------------------
 * For who calls one entry point again and again: what its names mean is found out once.
 *
 *   nimble_call_prepare(session, NULL, names, 2, 1, &call);
 *   for (...) nimble_call_run(call, inputs, outputs);
 *
 * Where all outputs have buffers, a run of shapes that the run before had asks the system for no
 * memory of its own. */

typedef struct nimble_call nimble_call;

/* A call of entry point `entry` (NULL: the default one) with the inputs that `input_names` name, or
 * its first `input_count` ones if that is NULL, and its first `output_count` outputs. The session
 * must outlive it; a session may have many. */
NIMBLE_API nimble_status nimble_call_prepare(nimble_session* session, const char* entry,
                                             const char* const* input_names, size_t input_count,
                                             size_t output_count, nimble_call** call);
/* nimble_session_run, with inputs[i] for the call's i-th name and as many outputs as it was made
 * for. An output for which the caller has given no buffer is his as there; of one with a buffer,
 * shape and strides belong to the call, until its next run: releasing it does nothing. */
NIMBLE_API nimble_status nimble_call_run(nimble_call* call, const nimble_tensor* inputs,
                                         nimble_tensor* outputs);
/* Before its session, unless that was destroyed while it ran this call. NULL is fine. */
NIMBLE_API void nimble_call_destroy(nimble_call* call);

/* ---- runs that can be suspended -----------------------------------------------------------
 * So that a model may give way to a more urgent one, a run can be cut into slices:
 *
 *   nimble_session_start(background, NULL, names, inputs, 2);
 *   while ((status = nimble_session_resume(background, 10000, outputs, 1)) == NIMBLE_SUSPENDED)
 *     if (a request is waiting) nimble_session_run(urgent, ...);
 *
 * or in one piece (0 instructions: no limit) that another thread interrupts with
 * nimble_session_suspend. Results are the same bytes as those of nimble_session_run. Between two
 * slices the run holds its memory, but neither a thread nor the thread pool; slices may run on
 * different threads, one after the other. */

/* Begins a run of `entry`; arguments as nimble_session_run. Executes nothing. Inputs that are used
 * in place are borrowed until the run has ended. */
NIMBLE_API nimble_status nimble_session_start(nimble_session* session, const char* entry,
                                              const char* const* input_names,
                                              const nimble_tensor* inputs, size_t input_count);
/* Goes on with the run for `instructions` at most (0: no limit).
 * NIMBLE_OK: it is done and the outputs are set. NIMBLE_SUSPENDED: it is not; nothing is set.
 * NIMBLE_INVALID_ARGUMENT: no run is suspended, or `outputs` are too many (the run stays
 * suspended) or too small. Any failure but these two of the arguments ends the run. Fuel counts
 * over all slices. */
NIMBLE_API nimble_status nimble_session_resume(nimble_session* session, uint64_t instructions,
                                               nimble_tensor* outputs, size_t output_count);
/* Makes the nimble_session_resume in progress return NIMBLE_SUSPENDED at its next jump, call,
 * return or kernel. Without one nothing happens; nimble_session_run takes no notice. May be called
 * from any thread and from a signal handler. */
NIMBLE_API void nimble_session_suspend(nimble_session* session);
/* Drops a suspended run and frees what it holds; nimble_session_destroy does so too. */
NIMBLE_API void nimble_session_abandon(nimble_session* session);

typedef int32_t nimble_run_state;
enum { NIMBLE_RUN_NONE = 0, NIMBLE_RUN_RUNNING = 1, NIMBLE_RUN_SUSPENDED = 2 };

/* Where a session's run stands. All but `state` and `run` are filled in only while it is
 * suspended. */
typedef struct nimble_run_position {
  uint64_t struct_size;
  nimble_run_state state;
  uint32_t instruction;  /* of `function`, executed next: as `nimble inspect` numbers them */
  const char* function;  /* the model's text; NULL if not suspended */
  const char* source;    /* the operator that the instruction was made for; "" if not known */
  uint64_t instructions; /* executed so far */
  uint32_t depth;        /* calls nested inside the entry point */
  uint32_t reserved;
  uint64_t run; /* the number of the run that is running or suspended; 0 if none (version 4) */
} nimble_run_position;
#define NIMBLE_RUN_POSITION_INIT \
  { sizeof(nimble_run_position), 0, 0, NULL, NULL, 0, 0, 0, 0 }
/* Another thread may have changed it by the time of the answer. */
NIMBLE_API nimble_status nimble_session_position(const nimble_session* session,
                                                 nimble_run_position* position);

typedef struct nimble_memory_stats {
  uint64_t struct_size;
  uint64_t in_use;      /* bytes of live blocks, outputs held by the caller included */
  uint64_t reserved;    /* in_use plus blocks kept for reuse */
  uint64_t peak;        /* highest in_use since creation */
  uint64_t allocations; /* blocks handed out */
  uint64_t reuses;      /* of these, from blocks kept */
} nimble_memory_stats;
#define NIMBLE_MEMORY_STATS_INIT \
  { sizeof(nimble_memory_stats), 0, 0, 0, 0, 0 }
NIMBLE_API nimble_status nimble_session_memory(const nimble_session* session,
                                               nimble_memory_stats* stats);
/* Gives blocks kept for reuse back to the system: at once, or, while a run is in progress, when it
 * ends or is suspended. */
NIMBLE_API void nimble_session_trim(nimble_session* session);
/* The number of threads that the session's kernels run on: fewer than asked for if the system
 * starts no more. */
NIMBLE_API int32_t nimble_session_threads(const nimble_session* session);

/* The profiler: 1 starts it afresh, 0 stops it. A run (of a suspended one, a slice) in progress is
 * not affected, and is not part of a profile that starts meanwhile. */
NIMBLE_API void nimble_session_set_profiling(nimble_session* session, int32_t on);
/* What it saw until the last run or slice ended, as JSON: runs, wall_ns, kernel_ns, overhead_ns,
 * `instructions` (name, count, total_ns), `kernels` (name, source, implementation, shape, count,
 * total_ns, share). Valid until the calling thread's next query of a profile; "" on failure. */
NIMBLE_API const char* nimble_session_profile_json(nimble_session* session);
/* The same as a table for people. */
NIMBLE_API const char* nimble_session_profile_table(nimble_session* session);

/* What the runs did in their order, with `trace`: instructions, kernels and live bytes over time,
 * as JSON in the trace event format of Chrome's tracing, which Perfetto opens. Instructions beyond
 * `trace` are counted in otherData.dropped_instructions. Valid until the calling thread's next
 * query of a profile; "" on failure. (version 5) */
NIMBLE_API const char* nimble_session_trace_json(nimble_session* session);

/* How often each shape was run since the session was made, with record_shapes, as JSON: `entries`
 * (name, `symbols`, `shapes` (count, extents in the order of the symbols; most frequent first),
 * `further`). Symbols are the named dims of tensor inputs; an extent that no input of the run told
 * is -1. A run counts when its inputs were accepted. After 65,536 different shapes of an entry
 * point, runs of others count as `further`. Valid until the calling thread's next query of shapes;
 * "" on failure. (version 5) */
NIMBLE_API const char* nimble_session_shapes_json(nimble_session* session);

#ifdef __cplusplus
}
#endif
#endif /* NIMBLE_VM_API_NIMBLE_H_ */

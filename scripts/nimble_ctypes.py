"""nimble's C interface (vm/api/nimble.h) from Python, by ctypes and numpy.

    model = nimble_ctypes.Model("minilm.nimble")
    session = nimble_ctypes.Session(model, threads=2)
    embedding = session.run({"input_ids": ids})["sentence_embedding"]

Inputs are used in place where they are dense and of the right dtype; outputs are arrays over
memory of the library, given back when the array dies. A call with the same arrays again and again
is bound once: `call = session.bind({...})`, then `call.run()`, which costs one foreign call.
Entry points that take or return data types are called on values:

    leaf = nimble_ctypes.Value.fields(model.tag("Leaf"), [nimble_ctypes.Value.tensor(word)])
    result = session.run_values({"tree": leaf})["h"].array()

Every failure is a NimbleError with the library's one-line message. Handles close themselves when
collected; a session keeps its model, an output keeps itself. Models and sessions may be used in a
process that multiprocessing forks, unless another thread was running them at that moment.
"""

import collections
import ctypes
import json
import os
import pathlib

import numpy as np

API_VERSION = 4
DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "V2", "f4", "f8")  # by code
CODES = {np.dtype(text): code for code, text in enumerate(DTYPES)}

Port = collections.namedtuple("Port", "name dtype dims default_fill")
# Bytes live, held and most ever live; blocks handed out, and those of them that were kept before.
Memory = collections.namedtuple("Memory", "in_use reserved peak allocations reuses")


class NimbleError(RuntimeError):
    """A failed call; `status` is the nimble_status."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class _Tensor(ctypes.Structure):
    pass


_Release = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Tensor))
_Tensor._fields_ = [
    ("struct_size", ctypes.c_uint64), ("data", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    ("capacity", ctypes.c_uint64), ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_int32),
    ("dtype", ctypes.c_int32), ("device", ctypes.c_int32), ("reserved", ctypes.c_int32),
    ("owner", ctypes.c_void_p), ("release", _Release)]


class _LoadOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("trust", ctypes.c_int32),
                ("perf_map", ctypes.c_int32)]


class _Port(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("name", ctypes.c_char_p),
                ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("dims", ctypes.POINTER(ctypes.c_char_p)),
                ("extents", ctypes.POINTER(ctypes.c_int64)), ("default_fill", ctypes.c_char_p)]


class _SessionOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("threads", ctypes.c_int32),
                ("pin", ctypes.c_int32), ("memory_limit", ctypes.c_uint64),
                ("fuel", ctypes.c_uint64), ("depth", ctypes.c_uint32),
                ("profile", ctypes.c_uint32)]


class _MemoryStats(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64),
                *((name, ctypes.c_uint64) for name in Memory._fields)]


def _sized(structure, **fields):
    return structure(struct_size=ctypes.sizeof(structure), **fields)


def find_library():
    """Returns the path of libnimble.so: $NIMBLE_LIBRARY, or build/lib of this checkout."""
    given = os.environ.get("NIMBLE_LIBRARY")
    path = pathlib.Path(given) if given else (
        pathlib.Path(__file__).resolve().parents[1] / "build" / "lib" / "libnimble.so")
    if not path.exists():
        raise NimbleError(2, f"{path}: no such library; build it with scripts/quickstart, or name "
                             "it in NIMBLE_LIBRARY")
    return path


_library = None


def library():
    """Returns the loaded library with the signatures of the calls that are used here."""
    global _library
    if _library is not None:
        return _library
    path = find_library()
    lib = ctypes.CDLL(str(path))
    lib.nimble_api_version.restype = ctypes.c_uint32
    if lib.nimble_api_version() < API_VERSION:
        raise NimbleError(4, f"{path}: interface version {lib.nimble_api_version()} is older than "
                             f"{API_VERSION}; rebuild it")
    handle, pointer, i32 = ctypes.c_void_p, ctypes.POINTER, ctypes.c_int32
    signatures = {
        "nimble_version": (ctypes.c_char_p, []),
        "nimble_last_error": (ctypes.c_char_p, []),
        "nimble_tensor_release": (None, [pointer(_Tensor)]),
        "nimble_load": (i32, [ctypes.c_char_p, pointer(_LoadOptions), pointer(handle)]),
        "nimble_model_destroy": (None, [handle]),
        "nimble_model_info": (ctypes.c_char_p, [handle]),
        "nimble_model_input_count": (i32, [handle, i32]),
        "nimble_model_output_count": (i32, [handle, i32]),
        "nimble_model_input": (i32, [handle, i32, i32, pointer(_Port)]),
        "nimble_model_output": (i32, [handle, i32, i32, pointer(_Port)]),
        "nimble_session_create": (i32, [handle, pointer(_SessionOptions), pointer(handle)]),
        "nimble_session_destroy": (None, [handle]),
        "nimble_model_find_tag": (ctypes.c_int64, [handle, ctypes.c_char_p]),
        "nimble_session_run_values": (i32, [handle, ctypes.c_char_p, pointer(ctypes.c_char_p),
                                            pointer(handle), ctypes.c_size_t, pointer(handle),
                                            ctypes.c_size_t]),
        "nimble_value_from_tensor": (i32, [pointer(_Tensor), pointer(handle)]),
        "nimble_value_from_fields": (i32, [ctypes.c_int64, pointer(handle), ctypes.c_size_t,
                                           pointer(handle)]),
        "nimble_value_retain": (None, [handle]),
        "nimble_value_release": (None, [handle]),
        "nimble_value_tag": (ctypes.c_int64, [handle]),
        "nimble_value_field_count": (ctypes.c_size_t, [handle]),
        "nimble_value_field": (handle, [handle, ctypes.c_size_t]),
        "nimble_value_tensor": (i32, [handle, pointer(_Tensor)]),
        "nimble_session_threads": (i32, [handle]),
        "nimble_session_memory": (i32, [handle, pointer(_MemoryStats)]),
        "nimble_session_set_profiling": (None, [handle, i32]),
        "nimble_session_profile_json": (ctypes.c_char_p, [handle]),
        "nimble_session_next_run": (ctypes.c_uint64, [handle]),
        "nimble_cancel": (None, [handle]),
        "nimble_cancel_run": (None, [handle, ctypes.c_uint64]),
        "nimble_session_run": (i32, [handle, ctypes.c_char_p, pointer(ctypes.c_char_p),
                                     pointer(_Tensor), ctypes.c_size_t, pointer(_Tensor),
                                     ctypes.c_size_t]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    _library = lib
    return lib


def _check(status):
    if status != 0:
        raise NimbleError(status, library().nimble_last_error().decode())


def version():
    """Returns the library's version, like "0.1.0"."""
    return library().nimble_version().decode()


class Model:
    """A compiled model. Loading runs the file's native code later on: only load what you trust."""

    def __init__(self, path):
        self._lib, self._handle = library(), ctypes.c_void_p()
        options = _sized(_LoadOptions, trust=1)
        _check(self._lib.nimble_load(os.fsencode(path), options, self._handle))
        self.inputs = self._ports(self._lib.nimble_model_input_count, self._lib.nimble_model_input)
        self.outputs = self._ports(self._lib.nimble_model_output_count,
                                   self._lib.nimble_model_output)

    def info(self):
        """Returns what the loader chose, as JSON text."""
        return self._lib.nimble_model_info(self._handle).decode()

    def tag(self, constructor):
        """Returns the number of a constructor of the entry points' data types."""
        tag = self._lib.nimble_model_find_tag(self._handle, constructor.encode())
        if tag < 0:
            raise NimbleError(2, f"the model has no constructor {constructor}")
        return tag

    def _ports(self, count, query):
        ports = []
        for index in range(count(self._handle, 0)):
            port = _sized(_Port)
            _check(query(self._handle, 0, index, port))
            ports.append(Port(port.name.decode(), np.dtype(DTYPES[port.dtype]),
                              tuple(port.dims[i].decode() for i in range(port.rank)),
                              (port.default_fill or b"").decode()))
        return ports

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.nimble_model_destroy(self._handle)


class Session:
    """Runs a model, one call at a time. threads: 0 takes all that the process may use; pin: bind
    them to cores."""

    def __init__(self, model, threads=0, pin=False):
        self._lib, self._handle, self.model = library(), ctypes.c_void_p(), model
        options = _sized(_SessionOptions, threads=threads, pin=int(pin))
        _check(self._lib.nimble_session_create(model._handle, options, self._handle))

    @property
    def threads(self):
        return self._lib.nimble_session_threads(self._handle)

    def memory(self):
        """Returns the Memory that the session's pool hands out and holds."""
        stats = _sized(_MemoryStats)
        _check(self._lib.nimble_session_memory(self._handle, stats))
        return Memory(*(getattr(stats, name) for name in Memory._fields))

    def set_profiling(self, on):
        """Starts a profile afresh, or stops it."""
        self._lib.nimble_session_set_profiling(self._handle, int(on))

    def profile(self):
        """Returns the profile as a dict: times by instruction, kernel and shape, in ns."""
        return json.loads(self._lib.nimble_session_profile_json(self._handle).decode())

    @property
    def next_run(self):
        """The number of the run that begins next; runs of a session count from 1."""
        return self._lib.nimble_session_next_run(self._handle)

    def cancel(self, run=None):
        """Stops, from any thread, the run in progress, or the run of this number alone: ask for
        next_run before the run begins. It then raises a NimbleError."""
        if run is None:
            self._lib.nimble_cancel(self._handle)
        else:
            self._lib.nimble_cancel_run(self._handle, run)

    def bind(self, inputs):
        """Returns a Call on these {name: array}; it keeps and reads the arrays themselves, so
        what is written into them later counts."""
        return Call(self, inputs)

    def run(self, inputs):
        """Runs once; returns {output name: array}."""
        return Call(self, inputs).run().outputs()

    def bind_values(self, inputs):
        """Returns a ValueCall on these {name: Value}."""
        return ValueCall(self, inputs)

    def run_values(self, inputs):
        """Runs once on {name: Value}; returns {output name: Value}."""
        return ValueCall(self, inputs).run().outputs()

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.nimble_session_destroy(self._handle)


class Call:
    """A run whose arguments are laid out once."""

    def __init__(self, session, inputs):
        self._session, self._lib = session, session._lib
        # Held: the tensors below only point into these.
        self._arrays = [np.asarray(array, order="C") for array in inputs.values()]
        self._shapes = [(ctypes.c_int64 * array.ndim)(*array.shape) for array in self._arrays]
        self._names = (ctypes.c_char_p * len(inputs))(*(name.encode() for name in inputs))
        self._inputs = (_Tensor * len(inputs))()
        for name, tensor, array, shape in zip(inputs, self._inputs, self._arrays, self._shapes):
            if array.dtype not in CODES:
                raise NimbleError(1, f"input {name}: no dtype of nimble for {array.dtype}")
            tensor.struct_size = ctypes.sizeof(_Tensor)
            tensor.data, tensor.capacity = array.ctypes.data, array.nbytes
            tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
            tensor.rank, tensor.dtype = array.ndim, CODES[array.dtype]
        self._results = None

    def run(self):
        """Runs; the outputs of an earlier run stay valid while someone holds them."""
        self._results = _Results(self._lib, len(self._session.model.outputs))
        _check(self._lib.nimble_session_run(
            self._session._handle, None, self._names, self._inputs, len(self._inputs),
            self._results.tensors, len(self._results.tensors)))
        return self

    def outputs(self):
        """Returns {output name: array} of the last run."""
        return {port.name: np.asarray(_View(self._results, index))
                for index, port in enumerate(self._session.model.outputs)}


class Value:
    """A tensor, or the number of a constructor with fields; tuples have number 0. Immutable."""

    def __init__(self, handle):
        self._lib, self._handle = library(), handle  # adopts the reference

    @staticmethod
    def tensor(array):
        """Returns a value with a copy of the array."""
        array = np.asarray(array, order="C")
        tensor = _sized(_Tensor, data=array.ctypes.data, rank=array.ndim,
                        dtype=CODES[array.dtype], shape=(ctypes.c_int64 * array.ndim)(*array.shape))
        made = ctypes.c_void_p()
        _check(library().nimble_value_from_tensor(tensor, made))
        return Value(made)

    @staticmethod
    def fields(tag, fields):
        made = ctypes.c_void_p()
        handles = (ctypes.c_void_p * len(fields))(*(field._handle.value for field in fields))
        _check(library().nimble_value_from_fields(tag, handles, len(fields), made))
        return Value(made)

    @property
    def tag(self):
        """The constructor's number; -1 of a tensor."""
        return self._lib.nimble_value_tag(self._handle)

    def __len__(self):
        return self._lib.nimble_value_field_count(self._handle)

    def __getitem__(self, index):
        field = self._lib.nimble_value_field(self._handle, index)
        if field is None:
            raise IndexError(f"the value has {len(self)} fields, no field {index}")
        self._lib.nimble_value_retain(field)
        return Value(ctypes.c_void_p(field))

    def array(self):
        """Returns a copy of a tensor."""
        tensor = _sized(_Tensor)
        _check(self._lib.nimble_value_tensor(self._handle, tensor))
        dtype = np.dtype(DTYPES[tensor.dtype])
        shape = tuple(tensor.shape[i] for i in range(tensor.rank))
        size = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(tensor.data, size), dtype).reshape(shape)

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.nimble_value_release(self._handle)


class ValueCall:
    """A run on values whose arguments are laid out once."""

    def __init__(self, session, inputs):
        self._session, self._lib = session, session._lib
        self._values = list(inputs.values())  # held: the handles below belong to them
        self._names = (ctypes.c_char_p * len(inputs))(*(name.encode() for name in inputs))
        self._inputs = (ctypes.c_void_p * len(inputs))(
            *(value._handle.value for value in self._values))
        self._results = (ctypes.c_void_p * len(session.model.outputs))()
        self._arguments = (session._handle, None, self._names, self._inputs, len(self._inputs),
                           self._results, len(self._results))
        self._run, self._release_value = (self._lib.nimble_session_run_values,
                                          self._lib.nimble_value_release)
        self._held = False

    def run(self):
        """Runs; the outputs of an earlier run are given back."""
        if self._held:
            self._release()
        status = self._run(*self._arguments)
        if status != 0:
            _check(status)
        self._held = True
        return self

    def outputs(self):
        """Returns {output name: Value} of the last run."""
        values = {}
        for port, handle in zip(self._session.model.outputs, self._results):
            self._lib.nimble_value_retain(handle)
            values[port.name] = Value(ctypes.c_void_p(handle))
        return values

    def _release(self):
        self._held = False
        for index, handle in enumerate(self._results):
            self._release_value(handle)
            self._results[index] = None

    def __del__(self):
        if hasattr(self, "_results"):
            self._release()


class _Results:
    """Outputs of one run; they go back to the library with this object."""

    def __init__(self, lib, count):
        self._release, self.tensors = lib.nimble_tensor_release, (_Tensor * count)()
        for tensor in self.tensors:
            tensor.struct_size = ctypes.sizeof(_Tensor)

    def __del__(self):
        for tensor in self.tensors:
            self._release(tensor)


class _View:
    """One output for numpy.asarray, whose array keeps this object and so the memory."""

    def __init__(self, results, index):
        tensor = results.tensors[index]
        dtype = np.dtype(DTYPES[tensor.dtype])
        shape = tuple(tensor.shape[i] for i in range(tensor.rank))
        strides = tuple(tensor.strides[i] * dtype.itemsize
                        for i in range(tensor.rank)) if tensor.strides else None
        self._results = results
        self._nothing = None
        address = (tensor.data or 0) + tensor.byte_offset
        if 0 in shape:  # numpy wants an address even of nothing
            self._nothing = np.empty(1, dtype)
            address = self._nothing.ctypes.data
        self.__array_interface__ = {"version": 3, "typestr": dtype.str, "shape": shape,
                                    "strides": strides, "data": (address, False)}

# The part for producers of pyecho/pyecho.h, which is the contract. Functions are called through `buffer.api`, so
# nothing is linked: compile with the include folder pyecho.get_include().
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "pyecho/pyecho.h" nogil:
    const char* PYECHO_CAPSULE_NAME
    const int64_t PYECHO_FOREVER
    const size_t PYECHO_MAX_GROUP

    ctypedef enum pyecho_status:
        PYECHO_OK
        PYECHO_TIMEOUT
        PYECHO_CLOSED
        PYECHO_INTERRUPTED

    ctypedef struct pyecho_slot:
        unsigned char* data
        uint64_t ticket
        uint32_t index

    struct pyecho_api

    ctypedef struct pyecho_buffer:
        const pyecho_api* api

    struct pyecho_api:
        pyecho_status (*reserve)(
            pyecho_buffer* buffer, pyecho_slot* slots, size_t wanted, int64_t timeout_ns, size_t* count
        ) noexcept nogil
        pyecho_status (*commit)(pyecho_buffer* buffer, const pyecho_slot* slots, size_t count) noexcept nogil
        pyecho_status (*abort)(pyecho_buffer* buffer, const pyecho_slot* slots, size_t count) noexcept nogil
        pyecho_status (*fail)(pyecho_buffer* buffer, const char* message) noexcept nogil
        const char* (*last_error)() noexcept nogil

// What a program may report about its threads to a scheduler. Each call takes some nanoseconds, cannot
// fail, and does nothing where nobody reads. Made of crates/rt/src/c.rs by cbindgen.

#ifndef COREWISE_H
#define COREWISE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The calling thread begins to wait busily: from now on it does nothing useful.
void corewise_spin_begin(void);

// The calling thread no longer waits busily.
void corewise_spin_end(void);

// From now on the calling thread does the serial parts of its process, and no other.
void corewise_master_thread(void);

// The calling thread begins a phase of its work. Equal numbers are phases of the same kind.
void corewise_phase(uint32_t number);

// Adds to the work that the calling thread has done, in a unit that is the same for all threads of the
// program.
void corewise_heartbeat(uint64_t progress);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* COREWISE_H */

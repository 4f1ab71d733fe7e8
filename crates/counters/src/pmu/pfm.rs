//! Event encoding by libpfm4: from a name such as `amd64_fam15h_interlagos::CYCLES_FPU_EMPTY` to the numbers
//! that `perf_event_open` takes.
//!
//! libpfm4 offers only the PMUs that it finds on the machine, unless `LIBPFM_ENCODE_INACTIVE` is set when it
//! starts. It is set here: which file fits the machine is decided by [`super::detect`], which knows more
//! processors, and every file can be tested on every machine.

use super::group::Encoded;
use libloading::Library;
use perf_event_open_sys::bindings::perf_event_attr;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Mutex;

/// Why an event cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PfmError {
    /// libpfm4 is not installed or does not start.
    #[error("libpfm4 cannot be used: {problem} (Debian: `apt install libpfm4`)")]
    Start {
        /// Its own words.
        problem: String,
    },
    /// It does not know this event of this PMU.
    #[error("libpfm4 cannot encode the event `{event}` of the PMU `{pmu}`: {problem}")]
    Event {
        /// The PMU.
        pmu: String,
        /// The event with its unit masks.
        event: String,
        /// Its own words.
        problem: String,
    },
}

/// `pfm_perf_encode_arg_t` of `perfmon/pfmlib_perf_event.h`.
#[repr(C)]
struct EncodeArgument {
    /// A `perf_event_attr`.
    attr: *mut c_void,
    fstr: *mut *mut c_char,
    size: usize,
    idx: c_int,
    cpu: c_int,
    flags: c_int,
    pad0: c_int,
}

const PFM_SUCCESS: c_int = 0;
/// `PFM_PLM3`: count in user mode. Only a default; whether the kernel counts is decided when a group is
/// opened.
const PFM_PLM3: c_int = 0x08;
/// `PFM_OS_PERF_EVENT` of `pfm_os_t`.
const PFM_OS_PERF_EVENT: c_int = 1;

/// The library's file. It is loaded on first use, because its tables take more than a millisecond to load and
/// few machines' PMUs are used.
const FILE: &str = "libpfm.so.4";

type Strerror = unsafe extern "C" fn(c_int) -> *const c_char;
type Encode = unsafe extern "C" fn(*const c_char, c_int, c_int, *mut EncodeArgument) -> c_int;

/// The loaded library, initialised.
struct Pfm {
    strerror: Strerror,
    encode: Encode,
    /// Last, so that it is unloaded after all use.
    _library: Library,
}

/// The lock keeps calls apart: libpfm4 promises nothing about threads.
static PFM: Mutex<Option<Pfm>> = Mutex::new(None);

/// Encodes `event` (libpfm4's name with unit masks) of `pmu`.
pub fn encode(pmu: &str, event: &str) -> Result<Encoded, PfmError> {
    let failed = |problem| PfmError::Event { pmu: pmu.into(), event: event.into(), problem };
    let name =
        CString::new(format!("{pmu}::{event}")).map_err(|_| failed("its name holds a zero byte".into()))?;
    // A panic elsewhere while the lock was held leaves libpfm4 as it was: it has no state between calls.
    let mut loaded = PFM.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let pfm = match &mut *loaded {
        Some(pfm) => pfm,
        none => none.insert(Pfm::load(FILE)?),
    };
    pfm.encode(&name).map_err(failed)
}

impl Pfm {
    fn load(file: &str) -> Result<Pfm, PfmError> {
        // The loader's own words, which name the file, are the error's source.
        let failed = |error: libloading::Error| PfmError::Start {
            problem: error.source().map_or_else(|| error.to_string(), ToString::to_string),
        };
        // SAFETY: what the library does when it is loaded and unloaded needs nothing of this process.
        let library = unsafe { Library::new(file) }.map_err(failed)?;
        // SAFETY: the types are those of `perfmon/pfmlib.h`, and the functions are not used after the
        // library.
        let (initialize, strerror, encode) = unsafe {
            let initialize = library.get::<unsafe extern "C" fn() -> c_int>("pfm_initialize");
            let strerror = library.get::<Strerror>("pfm_strerror");
            let encode = library.get::<Encode>("pfm_get_os_event_encoding");
            (*initialize.map_err(failed)?, *strerror.map_err(failed)?, *encode.map_err(failed)?)
        };
        let pfm = Pfm { strerror, encode, _library: library };
        // SAFETY: Rust's own accesses to the environment are locked against each other. What remains is a
        // foreign thread that reads the environment in C at this moment; corewise has none when it chooses
        // its counters.
        unsafe { std::env::set_var("LIBPFM_ENCODE_INACTIVE", "1") };
        // SAFETY: it has no preconditions, and the caller's lock keeps it from running twice at once.
        let code = unsafe { initialize() };
        // SAFETY: as for setting it. A program started later must not inherit the variable.
        unsafe { std::env::remove_var("LIBPFM_ENCODE_INACTIVE") };
        if code == PFM_SUCCESS { Ok(pfm) } else { Err(PfmError::Start { problem: pfm.words(code) }) }
    }

    fn encode(&self, name: &CStr) -> Result<Encoded, String> {
        let mut attr = perf_event_attr::default();
        let mut argument = EncodeArgument {
            attr: (&raw mut attr).cast(),
            fstr: std::ptr::null_mut(),
            size: size_of::<EncodeArgument>(),
            idx: 0,
            cpu: -1,
            flags: 0,
            pad0: 0,
        };
        // SAFETY: the library is initialised, the caller holds the lock, `name` is zero-terminated, and
        // `argument` is of the C type's layout with its own size; `attr` is at least as long as libpfm4's
        // idea of it (it only grows).
        let code = unsafe { (self.encode)(name.as_ptr(), PFM_PLM3, PFM_OS_PERF_EVENT, &mut argument) };
        if code != PFM_SUCCESS {
            return Err(self.words(code));
        }
        // SAFETY: both fields of the union are plain integers of the same size.
        let config1 = unsafe { attr.__bindgen_anon_3.config1 };
        // SAFETY: this union, too, is of plain integers of the same size.
        let config2 = unsafe { attr.__bindgen_anon_4.config2 };
        Ok(Encoded { perf_type: attr.type_, config: attr.config, config1, config2 })
    }

    /// libpfm4's words for one of its error codes.
    fn words(&self, code: c_int) -> String {
        // SAFETY: it takes any code and returns a string that lives as long as the library.
        let text = unsafe { CStr::from_ptr((self.strerror)(code)) };
        text.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::{EventCode, events_table};
    use super::*;

    #[test]
    fn every_event_of_every_file_is_encoded_on_any_machine() {
        let mut by_name = 0;
        for file in events_table(&[]).unwrap() {
            let mut codes = Vec::new();
            for event in &file.events {
                let config = match &event.code {
                    EventCode::Pfm(pfm) => {
                        by_name += 1;
                        let encoded = encode(file.pmu.as_ref().unwrap(), pfm).unwrap();
                        assert_eq!((encoded.perf_type, encoded.config1), (4, 0), "{} {pfm}", file.name);
                        encoded.config
                    }
                    EventCode::Raw { config, is, source } => {
                        // ARM: 16 bits of event. x86: event and unit mask, nothing that needs a privilege.
                        assert!((1..=0xffff).contains(config), "{} {}", file.name, event.name);
                        assert!(is.len() > 3 && source.len() > 20, "{} {}", file.name, event.name);
                        *config
                    }
                };
                assert!(!codes.contains(&config), "{}: two names for {config:#x}", file.name);
                codes.push(config);
            }
        }
        assert!(by_name > 50, "{by_name}");
    }

    #[test]
    fn the_papers_event_has_the_code_of_amds_manual() {
        let empty = encode("amd64_fam15h_interlagos", "CYCLES_FPU_EMPTY").unwrap();
        assert_eq!(empty, Encoded { perf_type: 4, config: 0x001, config1: 0, config2: 0 });
        let clock = encode("perf", "PERF_COUNT_SW_TASK_CLOCK").unwrap();
        assert_eq!((clock.perf_type, clock.config), (1, 1));
    }

    #[test]
    fn errors_name_event_and_pmu() {
        for (pmu, event) in [("amd64_fam15h_interlagos", "NO_SUCH"), ("no_such", "CYCLES"), ("spr", "a\0b")] {
            let error = encode(pmu, event).unwrap_err().to_string();
            assert!(error.contains(pmu) && error.contains(event), "{error}");
        }
    }

    #[test]
    fn where_the_library_is_missing_its_package_is_named() {
        let error = Pfm::load("libpfm-of-nobody.so").map(drop).unwrap_err().to_string();
        assert!(error.contains("libpfm-of-nobody.so") && error.contains("apt install libpfm4"), "{error}");
    }

    #[test]
    fn the_environment_is_left_as_it_was() {
        encode("skl", "UNHALTED_CORE_CYCLES").unwrap();
        assert_eq!(std::env::var_os("LIBPFM_ENCODE_INACTIVE"), None);
    }
}

//! What a call costs a program that has loaded the shared library, as C programs do.

use criterion::Criterion;
use std::ffi::{CStr, CString};

/// Loads the library that cargo has built, into the directory of this program.
fn library() -> *mut libc::c_void {
    let own = std::env::current_exe().expect("this program has a file");
    let directory = own.parent().expect("a file is in a directory");
    let path = CString::new(directory.join("libcorewise.so").into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: the path is a string, and what the library does when it is loaded is ours.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "cannot load {path:?}");
    library
}

fn address(library: *mut libc::c_void, name: &CStr) -> *mut libc::c_void {
    // SAFETY: the library is loaded, the name is a string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is missing");
    found
}

fn calls(criterion: &mut Criterion) {
    let library = library();
    // SAFETY: these are the functions of `include/corewise.h`, of just these types.
    let (begin, end, phase, heartbeat) = unsafe {
        (
            std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(address(
                library,
                c"corewise_spin_begin",
            )),
            std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(address(library, c"corewise_spin_end")),
            std::mem::transmute::<*mut libc::c_void, extern "C" fn(u32)>(address(library, c"corewise_phase")),
            std::mem::transmute::<*mut libc::c_void, extern "C" fn(u64)>(address(
                library,
                c"corewise_heartbeat",
            )),
        )
    };
    criterion.bench_function("spin_begin and spin_end", |bencher| {
        bencher.iter(|| {
            begin();
            end();
        })
    });
    criterion.bench_function("phase", |bencher| bencher.iter(|| phase(1)));
    criterion.bench_function("heartbeat", |bencher| bencher.iter(|| heartbeat(1)));
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    calls(&mut criterion);
    criterion.final_summary();
}

//! What to do about a program without a build id.

use corewise_code::elf::ElfFile;

/// Returns how a program gets the build id that it lacks.
pub fn how_to_get_build_id(elf: &ElfFile) -> &'static str {
    // Go's own linker takes no options for that of C.
    if elf.has_section(".go.buildinfo") {
        "build it with -ldflags=-B=gobuildid"
    } else {
        "link it with -Wl,--build-id"
    }
}

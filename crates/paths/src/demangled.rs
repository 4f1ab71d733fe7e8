//! Names of functions as in their sources: of C++ and Rust, and without clang's suffix for static functions
//! (`.__uniq.123`, see `-funique-internal-linkage-names`).

/// How mangled names begin: of C++ (Itanium ABI) and older Rust, of Rust, of blocks in C++. The demanglers
/// take less for mangled, even names of C functions (`a`, `Pc`), which are types there.
const MANGLED: [&str; 3] = ["_Z", "_R", "___Z"];

/// Returns a linker name in readable form; unchanged if it is of no known kind.
pub fn demangled(name: &str) -> String {
    let plain = name.split_once(".__uniq.").map_or(name, |(plain, _)| plain);
    if !MANGLED.iter().any(|start| plain.starts_with(start)) {
        return plain.to_owned();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(plain) {
        // Without the hash, which distinguishes builds.
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(plain).ok().and_then(|symbol| symbol.demangle().ok());
    cpp.unwrap_or_else(|| plain.to_owned())
}

#[cfg(test)]
mod tests {
    use super::demangled;

    #[test]
    fn names_are_those_of_the_sources() {
        let check = |linker, source| assert_eq!(demangled(linker), source);
        check("luaV_execute", "luaV_execute");
        check("step.__uniq.1895990409766215", "step");
        check("_ZN4text5countEPKcRi", "text::count(char const*, int&)");
        check("_ZL3addii.__uniq.12", "add(int, int)");
        check("_ZN5words4main17h0123456789abcdefE", "words::main");
        check("_RNvCskwGfYPst2Cb_5words4main", "words::main");
        check("_Znonsense", "_Znonsense");
        check("main.(*Parser).next", "main.(*Parser).next");
        for of_c in ["a", "b", "i", "v", "l", "f", "Pc", "St", "ZN1a1bE", "RNvCs_1a1b"] {
            check(of_c, of_c);
        }
    }
}

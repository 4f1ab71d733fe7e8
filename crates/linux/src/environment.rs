//! What a process's environment says about the placement of its threads.

/// Whether the user of this process placed its threads by an environment variable. Such a wish wins: libgomp,
/// LLVM's and Intel's OpenMP follow it at a time of their own choosing.
pub fn places_threads(pid: u32) -> bool {
    // A process that ended, or belongs to somebody else, is not placed anyway.
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| wishes(&environ))
}

fn wishes(environ: &[u8]) -> bool {
    environ.split(|&byte| byte == 0).any(|entry| {
        let text = String::from_utf8_lossy(entry);
        let Some((name, value)) = text.split_once('=') else { return false };
        let value = value.trim().to_ascii_lowercase();
        match name {
            "OMP_PLACES" | "GOMP_CPU_AFFINITY" => !value.is_empty(),
            "OMP_PROC_BIND" => !matches!(value.as_str(), "" | "false"),
            "KMP_AFFINITY" => !value.is_empty() && !value.contains("none") && !value.contains("disabled"),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wish_counts() {
        let check = |environ: &str, expected| assert_eq!(wishes(environ.as_bytes()), expected, "{environ:?}");
        check("", false);
        check("PATH=/bin\0OMP_NUM_THREADS=4\0", false);
        check("PATH=/bin\0OMP_PLACES=cores\0", true);
        check("OMP_PLACES=\0", false);
        check("GOMP_CPU_AFFINITY=0-3", true);
        check("KMP_AFFINITY=granularity=fine,compact\0", true);
        check("KMP_AFFINITY=verbose,none\0", false);
        check("OMP_PROC_BIND=false\0", false);
        check("OMP_PROC_BIND=close\0", true);
        check("MY_OMP_PLACES=cores\0OMP_PLACES_X=1\0", false);
    }
}

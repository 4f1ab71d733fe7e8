//! Executes a command and prints the share of its time in which the FPU was busy, by single steps, as
//! tab-separated values: `fpu_busy [--instants N] [--rate HZ] -- COMMAND [ARGS]`. The command is killed after
//! that many instants. Used by `studies/fpu-usage`.

#[cfg(target_arch = "x86_64")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use corewise_branches::{Options, busy::busy};
    use corewise_sys::launch::Output;
    let mut options = Options { output: Output::ToStandardError, ..Options::default() };
    let mut instants_max = 400;
    let mut arguments = std::env::args_os().skip(1);
    let mut command = Vec::new();
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.to_str()?.parse::<f64>().ok());
        match argument.to_str() {
            Some("--instants") => instants_max = number().ok_or("--instants needs a number")? as u64,
            Some("--rate") => {
                options.period =
                    std::time::Duration::from_secs_f64(1.0 / number().ok_or("--rate needs a number")?);
            }
            Some("--") => command = arguments.by_ref().collect(),
            _ => return Err("usage: fpu_busy [--instants N] [--rate HZ] -- COMMAND [ARGS]".into()),
        }
    }
    let found = busy(&command, &options, instants_max)?;
    let share = |count: u64| count as f64 / found.instants.max(1) as f64;
    println!("instants\tfp\tvector\truntime");
    println!("{}\t{:.3}\t{:.3}\t{}", found.instants, share(found.float), share(found.vector), found.runtime);
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("single steps are for x86-64 only");
}

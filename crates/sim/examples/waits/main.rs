//! Programs that share a machine, by how their idle threads wait; everything is simulated.
//!
//! ```text
//! waits [--pes N] [--copies 1,2,4] [--runs N] SCENARIO…   the table of studies/waits/simulated
//! waits grid [--quick] [--only PATTERN] [--seeds N] [--unchanged FILE] [--trace] FOLDER
//! waits accuracy [--runs N] FOLDER                        the table against FOLDER/measured.csv
//! ```
//!
//! It is called by `cargo run --release -p corewise-sim --example waits --`. `grid` runs programs on machines
//! of 2 to 256 PEs under many conditions ([`corewise_sim::grid`]), on two threads; the result does not depend
//! on their number. `--only` takes cells whose names (`cg+coarse 16 x2`) hold all words of the pattern, `2`
//! only as a whole word. `--unchanged FILE` keeps the times that do not depend on corewise in that file,
//! which makes a further run cheaper; remove it when the simulator changes. `--trace` prints what corewise
//! changes in the first seed of each cell, with what it was informed of before.

mod accuracy;
mod cells;
mod grid;
mod parallel;
mod table;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "grid" => grid::main(rest),
        Some((first, rest)) if first == "accuracy" => accuracy::main(rest),
        _ => table::main(&arguments),
    }
}

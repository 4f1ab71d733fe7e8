//! Attaches to a running command again and again, and reports whether the command noticed:
//! `cargo run --release -p corewise-branches --example shadow_attach -- [--count N] [--kill] [--hz N]
//! COMMAND…`
//!
//! With `--kill`, each time by a process of its own that is killed with SIGKILL while it samples.

use corewise_branches::{Backend, Options, Target, record};
use std::process::{Child, Command};
use std::time::Duration;

fn main() {
    let (mut count, mut hz, mut kill, mut sample) = (1000, 2000.0, false, None);
    let mut arguments = std::env::args().skip(1).peekable();
    while let Some(option) = arguments.next_if(|argument| argument.starts_with("--")) {
        let mut number = || arguments.next().and_then(|text| text.parse::<f64>().ok()).expect("a number");
        match option.as_str() {
            "--count" => count = number() as u32,
            "--hz" => hz = number(),
            "--kill" => kill = true,
            "--sample" => sample = Some(number() as u32),
            _ => panic!("unknown option {option}"),
        }
    }
    let options = Options {
        backend: Backend::Shadow,
        period: Duration::from_secs_f64(1.0 / hz),
        duration: (!kill && sample.is_none()).then_some(Duration::from_millis(20)),
        ..Options::default()
    };
    if let Some(pid) = sample {
        println!(
            "{:?}",
            record(Target::Pid(pid), &options, &mut |_| {}).map(|recorded| recorded.exit_status)
        );
        return;
    }
    let command: Vec<String> = arguments.collect();
    let mut child = Command::new(&command[0]).args(&command[1..]).spawn().expect("the command starts");
    let mut windows = 0;
    for round in 0..count {
        if kill {
            sample_and_be_killed(child.id(), hz, round);
        } else {
            let recorded = record(Target::Pid(child.id()), &options, &mut |_| {});
            windows += recorded.expect("it can be attached to").recording.windows.len();
        }
        if let Some(status) = child.try_wait().expect("it is our child") {
            println!("after {round} times the command had ended: {status}");
            return;
        }
    }
    println!("{count} times, {windows} windows; the command runs on");
    wait_for(&mut child);
}

fn sample_and_be_killed(pid: u32, hz: f64, round: u32) {
    let mut sampler = Command::new(std::env::current_exe().expect("we are a file"))
        .args(["--hz", &hz.to_string(), "--sample", &pid.to_string()])
        .spawn()
        .expect("it starts");
    // At many different moments.
    std::thread::sleep(Duration::from_micros(15_000 + u64::from(round) * 7919 % 20_000));
    sampler.kill().expect("it can be killed");
    sampler.wait().expect("it is our child");
}

fn wait_for(child: &mut Child) {
    println!("it ended by itself: {}", child.wait().expect("it is our child"));
}

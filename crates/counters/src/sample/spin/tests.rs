//! Loops that wait and loops that do not, as a compiler made them.

use super::*;
use corewise_code::Role;
use corewise_code::snippet::Snippet;

/// A wait of libomp's kind, with many instructions a round: a round counter on the stack, a store of the same
/// value in each round, the state of the runtime, and calls, one of them through the linkage table.
const RUNTIME_WAIT: &str = "\
    ff35fa1d0000ff25fc1d00000f1f4000ff25fa1d00006800000000e9e0ffffff0f3148c1e2204809d0c3660f1f\
    4400008b05ea1d000083f801b80100000083d8ffc366662e0f1f8400000000000f1f00b8180000000f05c30f1f\
    840000000000ebee66662e0f1f8400000000000f1f00ebde66662e0f1f8400000000000f1f0041574156415549\
    89f54154554889d5534889fb4883ec188b057f1d00008944240ce86affffff4c8d3c28498b45004839c50f84a6\
    0000004c8d35661d00004c8d25631d0000eb1b660f1f840000000000418b042483f801745f498b45004839e874\
    7b488b43204885c0740f8b502085d2757e48c7432000000000c7431801000000418b16e827ffffff39c27f7bf3\
    908b44240c83e8028944240c8b44240c85c0746e418b042483f80174ae8b05eb1c00003dffffff7f7498e8d3fe\
    ffff4c39f87e978b05d81c000085c0748d4889dfe81cffffff498b45004839e875854883c4185b5d415c415d41\
    5e415fc30f1f40008b402485c074834889dfe8e1feffffe976ffffff0f1f4000e8c3feffffeb9390e8bbfeffff\
    8b05811c00008944240ceb81";

/// The game of life, where counts of neighbours become cells; the threads wait for each other after each
/// generation. A round in which no cell changes stores nothing.
const LIFE: &str = "4989f94989f231ff4585c07e6c0f1f004885d27e4531c0eb1b0f1f80000000004080fe02740541c604020048\
                    83c0014839c27419410fb634014080fe0375e141c60402014883c0014839c275e78b0139c7751d0f1f440000\
                    f3908b0139f874f883c7014139f875a8c30f1f800000000083c7014439c7759dc3c3";

/// The game of life on bytes: the neighbours of a cell are counted in two small loops that leave out the cell
/// itself, by a way around the innermost that leads to another condition than the one that it came by.
const NEIGHBOURS: &str = "\
    4531c00f1f840000000000b9ffffffff31f6428d141148c7c0ffffffff48c1e2094c01c24c01ca89cf09c70f84\
    9a0000000fb67c02014883c00101fe4883f80275e583c10183f90275c8b80100000083fe03740d31c083fe0275\
    06420fb644030143884403014983c0014981f8fe01000075984183c2014981c3000200004881c3000200004181\
    faff0100000f856effffff4c89cfba000004004889eee859fcffff660fefc04989c10fb6054b411600f20f2ac0\
    f20f11055fe51f02e92bffffff662e0f1f840000000000b801000000e952ffffff";

/// Where the wait loop of the code at an offset has its proofs, by offset; `None` if there is none.
fn found(mut snippet: Snippet, offset: u64) -> Option<Vec<u64>> {
    let WaitLoop { points, .. } = wait_loop(&mut snippet, Snippet::BASE + offset)?;
    assert!(points.iter().any(|&(address, _)| address == Snippet::BASE + offset));
    Some(points.iter().filter(|(_, proof)| *proof).map(|(address, _)| address - Snippet::BASE).collect())
}

fn check(name: &str, hex: &str, offset: u64, expected: bool) {
    assert_eq!(found(Snippet::new(hex), offset).is_some(), expected, "{name}");
}

#[test]
fn waiting_loops_are_recognised() {
    for (name, hex, offset) in [
        ("1: mov eax,[rdi]; test eax,eax; je 1b", "8b0785c074fac3", 0),
        ("1: test eax,eax; mov eax,[rdi]; je 1b (entered in its middle)", "85c08b0774fac3", 0),
        ("libgomp: pause, a counter of rounds, a flag", "f3904883c0014839c274068b0f39f174efc3", 0),
        ("pthread_spin_lock", "f0ff0f7501c3f390833f007ff3ebf7", 6),
        ("1: xor eax,eax; lock cmpxchg [rdi],ecx; jne 1b", "31c0f00fb10f75f8c3", 0),
        ("pause in a function with a stack frame", "e8070000008b0785c074f5c3554889e5f3905dc3", 0),
        ("1: rdtsc; shl rdx,32; or rax,rdx; cmp rax,rsi; jb 1b", "0f3148c1e2204809d04839f072f2c3", 0),
        ("1: mov eax,[rdi]; mov [rsi],1; test eax,eax; je 1b", "8b07c7060100000085c074f4c3", 0),
        ("1: lock or [rsp],0; mov eax,[rdi]; test eax,eax; je 1b", "f0830c24008b0785c074f5c3", 0),
    ] {
        check(name, hex, offset, true);
    }
}

#[test]
fn loops_that_get_on_are_no_waiting() {
    for (name, hex) in [
        ("1: inc rax; cmp byte [rax],0; jne 1b", "48ffc080380075f8c3"),
        ("1: mov rax,[rax]; test rax,rax; jne 1b", "488b004885c075f8c3"),
        ("1: lea edx,[rax+1]; lock cmpxchg [rdi],edx; jne 1b; jmp 1b", "8d5001f00fb11775f7ebf5"),
        ("1: lock inc [rdi]; cmp [rsi],0; je 1b", "f0ff07833e0074f8c3"),
        ("a counter on the stack", "8b45fc83c0018945fc83f86475f2c3"),
        ("1: mov eax,[rdi]; mov [rsi],eax; test eax,eax; je 1b", "8b07890685c074f8c3"),
        ("Fibonacci numbers around three registers", "4889d14889c2488d04114839f072f1c3"),
        ("a sum of doubles", "f20f100cc7f20f58c148ffc04839c875efc3"),
        ("no loop at all", "9090c3"),
    ] {
        check(name, hex, 0, false);
    }
}

/// `while (!ready(flag));`, compiled without optimisation and with.
#[test]
fn a_wait_that_looks_through_a_function_is_recognised() {
    // 1: mov rdi,[rbp-8]; call ready; test eax,eax; je 1b; ret;
    // ready: push rbp; mov rbp,rsp; mov [rbp-8],rdi; mov rax,[rbp-8]; mov eax,[rax]; pop rbp; ret
    let plain = "488b7df8e80500000085c074f3c3554889e548897df8488b45f88b005dc3";
    check("caller", plain, 0, true);
    // 1: call ready; test eax,eax; je 1b; ret;
    // ready: mov eax,[rip+8]; test eax,eax; setne al; movzx eax,al; ret
    check("optimised", "e80500000085c074f7c38b050800000085c00f95c00fb6c0c3", 5, true);
}

#[test]
fn a_wait_that_counts_its_iterations_is_recognised() {
    let optimised = "8b0785c0751931c0b901286beeeb059085d2750b4883c0018b174839c875f1c3";
    check("while (!*flag && count++ < most);", optimised, 0x14, true);
    let plain = "554889e548897de848c745f800000000eb10b800286bee483b45f87211488345f801488b45e88b0085c074e6\
                 eb0190905dc3";
    check("without optimisation", plain, 0x22, true);
}

#[test]
fn a_wait_that_backs_off_is_recognised() {
    let optimised = "8b0785c0751f662e0f1f840000000000b8200000000f1f009083e80175fa8b0785c074ecc3c3";
    let plain = "554889e548897de8eb14c745fc00000000eb05908345fc01837dfc1f7ef5488b45e88b0085c074e290905dc3";
    for offset in [0x18, 0x1e] {
        check("while (!*flag) for (32 times) nop;", optimised, offset, true);
    }
    check("without optimisation", plain, 0x14, true);
}

#[test]
fn a_wait_for_any_of_several_queues_is_recognised() {
    let optimised =
        "488db7000100004889f8488b08488b50084839d175154883c0404839f074e8488b08488b50084839d174ebc3";
    let plain = "554889e548897de8c745fc00000000eb368b45fc489848c1e0064889c2488b45e84801d0488b108b45fc489848\
                 c1e0064889c1488b45e84801c8488b40084839c2750c8345fc01837dfc037ec4ebb9905dc3";
    check("for (;;) for (4 queues) if (head != tail) return;", optimised, 0xa, true);
    check("without optimisation", plain, 0x3e, true);
}

#[test]
fn the_wait_of_a_runtime_is_recognised() {
    let code = || Snippet::new(RUNTIME_WAIT).with_pointer(0x20);
    for offset in [0xd9, 0x10d, 0x138, 0x30, 0x10] {
        let expected = (offset >= 0xd0).then(|| vec![0x10d, 0x10f]);
        assert_eq!(found(code(), offset), expected, "{offset:x}; what it calls does not know its caller");
    }
}

#[test]
fn a_barrier_does_not_make_the_work_before_it_a_wait() {
    for offset in [0x20, 0x24, 0x2b, 0x2f, 0x34, 0x39, 0x3d] {
        check("cells", LIFE, offset, false);
    }
    for offset in [0x58, 0x5a, 0x5c, 0x5e] {
        check("the barrier", LIFE, offset, true);
    }
}

/// Of all its ways around only one that looks at nothing gets on by nothing.
#[test]
fn a_way_around_that_looks_at_nothing_is_no_wait() {
    let waits = |&offset: &u64| found(Snippet::new(NEIGHBOURS), offset).is_some();
    let found: Vec<u64> = (0..NEIGHBOURS.len() as u64 / 2).filter(waits).collect();
    assert_eq!(found, [0; 0]);
    check("1: cmp eax,ecx; je 1b", "39c874fcc3", 0, false);
}

/// libomp looks at its flag through a virtual function.
#[test]
fn a_wait_through_a_function_pointer_needs_a_pause() {
    // 1: mov rax,[r13]; mov rdi,r13; call [rax+32]; test al,al; je 2f; pause; jmp 1b; 2: ret
    assert_eq!(found(Snippet::new("498b45004c89efff502084c07404f390ebeec3"), 0), Some(vec![14, 16]));
    // The same without the pause.
    check("no pause", "498b45004c89efff502084c07402ebf0c3", 0, false);
}

/// A search that is repeated looks like looking at several queues, but it is counted.
#[test]
fn a_repeated_search_is_no_wait() {
    // 2: xor eax,eax; 1: inc rax; cmp [rdi+rax],0; jne 1b; dec ecx; jne 2b; ret
    check("search", "31c048ffc0803c070075f7ffc975f1c3", 0, false);
}

/// Whatever the function compares or reads, it only looks.
#[test]
fn a_wait_that_calls_a_function_with_a_name_is_recognised() {
    // 1: lea rsi,[rip+64]; lea rdi,[rip+32]; call [rip+16]; test eax,eax; jne 1b; ret
    let through_slot = "488d3540000000488d3d20000000ff151000000085c075e8c3";
    // 1: mov rdi,rsp; call 2f; cmp [rsp],rbx; jb 1b; ret; 2: jmp [rip+16]
    let through_linkage = "4889e7e80700000048391c2472f2c3ff2510000000";
    for code in [through_slot, through_linkage] {
        let called = Snippet::new(code);
        assert_eq!(found(called, 0), None, "what is called is not known");
        let called = Snippet::new(code).with_role(Role::Looks);
        assert_eq!(found(called, 0), Some(vec![]));
    }
}

use super::super::descent::HandedOutWeight;
use super::super::ledger::{Bound, Entry};
use super::*;
use corewise_sys::niceness;
use corewise_sys::real_time::RealTime;
use corewise_testing::{Capability, or_skip};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The members that the test lists.
struct Listed(Vec<Vec<u32>>);

impl Members for Listed {
    fn look(&mut self, see: &mut dyn FnMut(u32, Membership) -> io::Result<()>) -> io::Result<bool> {
        let threads = self.0.pop().unwrap_or_default();
        threads.into_iter().try_for_each(|tid| see(tid, Membership::Yes)).map(|()| false)
    }
}

const WITHIN: Duration = Duration::from_secs(2);

/// While this is held, no other test restores. Their threads belong to the same process, so a restoration may
/// mistake a thread of another test for one that inherited its mask.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a thread of its own: binds it, calls `then`, restores, and returns the masks before and after.
fn restore_after(then: impl FnOnce(&mut Ledger, &ActToken, Task) + Send + 'static) -> (CpuSet, CpuSet) {
    restore_from(affinity::all_pes(), then)
}

/// Like [`restore_after`], with the PEs that the restoring thread may use.
fn restore_from(
    restorer: CpuSet,
    then: impl FnOnce(&mut Ledger, &ActToken, Task) + Send + 'static,
) -> (CpuSet, CpuSet) {
    let _alone = alone();
    std::thread::spawn(move || {
        let token = ActToken::mint();
        let thread = Task::of(nix::unistd::gettid().as_raw() as u32).unwrap().unwrap();
        let original = affinity::get(0).unwrap();
        let ours = CpuSet::single(original.last().unwrap());
        let mut ledger = Ledger::default();
        ledger.note(Entry::Bind { thread, original: original.clone(), ours: ours.clone() });
        mask::set(&token, 0, &ours).unwrap();
        then(&mut ledger, &token, thread);
        // Like the guardian, which is not bound.
        let restored = std::thread::spawn(move || {
            let token = ActToken::mint();
            mask::set(&token, 0, &restorer).unwrap();
            restore(&ledger, &token, None, &Memories::default(), WITHIN)
        });
        assert_eq!(restored.join().unwrap(), Remains::default());
        let after = affinity::get(0).unwrap();
        mask::set(&token, 0, &original).unwrap();
        (original, after)
    })
    .join()
    .unwrap()
}

#[test]
fn a_bound_thread_gets_its_mask_back() {
    let (before, after) = restore_after(|_, _, _| {});
    assert_eq!(before, after);
}

#[test]
fn a_mask_that_somebody_else_set_is_kept() {
    let (before, after) = restore_after(|_, token, _| {
        let first = CpuSet::single(affinity::all_pes().first().unwrap());
        mask::set(token, 0, &first).unwrap();
    });
    assert!(before.len() < 2 || after.len() == 1, "{before} became {after}");
}

#[test]
fn after_done_nothing_is_touched() {
    let (before, after) = restore_after(|ledger, _, _| ledger.note(Entry::Done));
    assert!(before.len() < 2 || after.len() == 1);
}

#[test]
fn an_inherited_mask_that_is_not_in_the_journal_is_restored_too() {
    let (before, after) = restore_after(|ledger, _, thread| {
        ledger.note(Entry::Member(Task::own().unwrap()));
        ledger.note(Entry::Free(thread.id));
    });
    assert_eq!(before, after);
}

#[test]
fn the_next_owner_of_a_bound_threads_number_keeps_its_mask() {
    let (before, after) = restore_after(|ledger, _, thread| {
        let Bound { original, ours, .. } = ledger.bound(thread).unwrap().clone();
        *ledger = Ledger::default();
        let earlier = Task { start: thread.start - 1, ..thread };
        ledger.note(Entry::Bind { thread: earlier, original, ours });
    });
    assert!(before.len() < 2 || after.len() == 1, "{before} became {after}");
}

#[test]
fn a_thread_that_pinned_itself_is_no_heir_but_the_next_owner_of_its_number_may_be() {
    for (earlier, kept) in [(0, true), (1, false)] {
        let (before, after) = restore_after(move |ledger, _, thread| {
            ledger.note(Entry::Member(Task::own().unwrap()));
            ledger.note(Entry::Free(thread.id));
            ledger.note(Entry::Pinned(Task { start: thread.start - earlier, ..thread }));
        });
        assert!(before.len() < 2 || (after.len() == 1) == kept, "{before} became {after}");
    }
}

/// A listed thread that ends before it is seen may have left a thread with an inherited mask.
#[test]
fn passes_are_repeated_until_every_thread_was_seen() {
    std::thread::spawn(|| {
        let token = ActToken::mint();
        let (tid, own) = (nix::unistd::gettid().as_raw() as u32, affinity::get(0).unwrap());
        let ours = CpuSet::single(own.last().unwrap());
        let mut ledger = Ledger::default();
        ledger.note(Entry::HandedOut { original: own.clone(), ours: ours.clone() });
        mask::set(&token, 0, &ours).unwrap();
        let restored = std::thread::spawn(move || {
            let token = ActToken::mint();
            mask::set(&token, 0, &affinity::all_pes()).unwrap();
            // From the last to the first.
            let mut members = Listed(vec![vec![tid], vec![u32::MAX / 2], vec![u32::MAX / 2]]);
            restore_members(&ledger, &token, &mut members, WITHIN)
        });
        assert_eq!(restored.join().unwrap(), Remains::default());
        assert_eq!(affinity::get(0), Ok(own));
    })
    .join()
    .unwrap();
}

/// Every pass has a thread that cannot be judged; passes take this long.
struct Busy(Option<u32>, Duration);

impl Members for Busy {
    fn look(&mut self, see: &mut dyn FnMut(u32, Membership) -> io::Result<()>) -> io::Result<bool> {
        std::thread::sleep(self.1);
        self.0.map_or(Ok(()), |tid| see(tid, Membership::Unknown))?;
        Ok(true)
    }
}

fn restored_by(mut members: Busy, within_ms: u64) -> Remains {
    let own = affinity::get(0).unwrap();
    let mut ledger = Ledger::default();
    // A restored mask would be visible there.
    let original = own.union(&CpuSet::single(affinity::of_cpuset().unwrap().last().unwrap()));
    ledger.note(Entry::HandedOut { original, ours: own });
    restore_members(&ledger, &ActToken::mint(), &mut members, Duration::from_millis(within_ms))
}

#[test]
fn strangers_that_end_all_the_time_delay_nothing() {
    assert_eq!(restored_by(Busy(None, Duration::ZERO), 10_000), Remains::default());
}

#[test]
fn a_thread_that_is_never_caught_is_reported() {
    corewise_testing::needs!(TwoPes);
    std::thread::spawn(|| {
        mask::set(&ActToken::mint(), 0, &CpuSet::single(affinity::get(0).unwrap().first().unwrap())).unwrap();
        let tid = nix::unistd::gettid().as_raw() as u32;
        assert!(restored_by(Busy(Some(tid), Duration::ZERO), 5).outrun);
    })
    .join()
    .unwrap();
}

/// This thread is real-time and leaves the other no time on their PE.
#[test]
fn a_restored_thread_that_has_not_run_since_may_be_creating_another() {
    let missing = |errno: &Errno| (*errno == Errno::EPERM).then_some(Capability::RealTime);
    std::thread::spawn(move || {
        let token = ActToken::mint();
        mask::set(&token, 0, &CpuSet::single(affinity::get(0).unwrap().first().unwrap())).unwrap();
        let _real_time = or_skip!(RealTime::enter(1), missing);
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let busy = Task::of(child.id()).unwrap().unwrap();
        let normal = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters live through the call, which only reads them.
        assert_eq!(unsafe { libc::sched_setscheduler(busy.id as i32, libc::SCHED_OTHER, &normal) }, 0);
        let mut given = HashMap::from([(busy, None)]);
        for _ in 0..3 {
            assert!(is_halfway(&mut given));
        }
        while is_halfway(&mut given) {
            std::thread::sleep(PAUSE);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_halfway(&mut given), "it has ended");
    })
    .join()
    .unwrap();
}

/// One pass without findings does not make up for those for which there was no time.
#[test]
fn a_slow_look_is_not_enough() {
    assert!(restored_by(Busy(None, Duration::from_millis(10)), 5).outrun);
}

#[test]
fn corewise_gives_back_though_its_user_has_narrowed_it_meanwhile() {
    corewise_testing::needs!(TwoPes);
    let first = CpuSet::single(affinity::get(0).unwrap().first().unwrap());
    let (before, after) = restore_from(first, |_, _, _| {});
    assert_eq!(before, after);
}

/// A program that maps a file of its own file system, which never delivers the second page of it. It prints
/// where it has mapped the first, and where its code is.
const HIDING: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <linux/fuse.h>
    #include <pthread.h>
    #include <sched.h>
    #include <stdio.h>
    #include <sys/mman.h>
    #include <sys/mount.h>
    #include <sys/stat.h>
    #include <unistd.h>
    static int fuse;
    static void *serve(void *nothing) {
        static char bytes[1 << 17];
        struct fuse_in_header *request = (void *)bytes;
        while (read(fuse, bytes, sizeof bytes) > 0) {
            struct {
                struct fuse_out_header head;
                union {
                    struct fuse_init_out init;
                    struct fuse_attr_out attr;
                    struct fuse_open_out open;
                    char page[4096];
                };
            } answer = {.head = {.unique = request->unique}};
            size_t length = 0;
            if (request->opcode == FUSE_INIT) {
                answer.init = (struct fuse_init_out){.major = 7, .minor = 31, .max_write = 4096};
                length = sizeof answer.init;
            } else if (request->opcode == FUSE_GETATTR) {
                answer.attr.attr =
                    (struct fuse_attr){.ino = 1, .size = 8192, .mode = S_IFREG | 0666, .nlink = 1};
                length = sizeof answer.attr;
            } else if (request->opcode == FUSE_OPEN) {
                length = sizeof answer.open;
            } else if (request->opcode == FUSE_READ) {
                if (((struct fuse_read_in *)(request + 1))->offset > 0) continue;
                length = sizeof answer.page;
            } else {
                answer.head.error = -ENOSYS;
            }
            answer.head.len = sizeof answer.head + length;
            if (write(fuse, &answer, answer.head.len) < 0) perror("answer");
        }
        return nothing;
    }
    int main(int arguments, char **argument) {
        char options[99];
        pthread_t server;
        fuse = open("/dev/fuse", O_RDWR);
        snprintf(options, sizeof options, "fd=%d,rootmode=100666,user_id=0,group_id=0", fuse);
        if (arguments != 2 || unshare(CLONE_NEWNS) || mount("", "/", 0, MS_REC | MS_PRIVATE, 0)) return 1;
        if (mount("hiding", argument[1], "fuse", 0, options)) return 2;
        pthread_create(&server, 0, serve, 0);
        struct stat size;
        int file = open(argument[1], O_RDWR);
        fstat(file, &size);
        volatile long *word = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        if (word == MAP_FAILED || *word) return 3;
        // To close it when the program is killed would wait for the server.
        close(file);
        printf("%lx %lx\n", (long)word, (long)main);
        fflush(stdout);
        for (;;) pause();
    }"#;

#[test]
fn a_program_whose_memory_cannot_be_read_keeps_no_other_from_its_mask() {
    corewise_testing::needs!(Root, TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("hiding.c"), HIDING).unwrap();
    let compiled =
        Command::new("cc").arg("-pthread").arg("-o").arg(path("hiding")).arg(path("hiding.c")).status();
    assert!(compiled.unwrap().success());
    let mut hiding =
        Command::new(path("hiding")).arg(path("hiding.c")).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(hiding.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let Some((first, code)) = line.trim().split_once(' ') else {
        corewise_testing::skip!(Fuse, "FUSE cannot be mounted: {}", hiding.wait().unwrap())
    };
    let [first, code] = [first, code].map(|text| u64::from_str_radix(text, 16).unwrap());
    let memory = corewise_code::library::memory(hiding.id()).unwrap();
    let found = Word::found(hiding.id(), &memory, first, 8, code).unwrap();
    let word = Word { address: first + 4096, ours: BTreeSet::from([200]), ..found };
    let _alone = alone();
    std::thread::spawn(move || {
        let (thread, token) =
            (Task::of(nix::unistd::gettid().as_raw() as u32).unwrap().unwrap(), ActToken::mint());
        let original = affinity::get(0).unwrap();
        let ours = CpuSet::single(original.last().unwrap());
        let mut ledger = Ledger::default();
        ledger.note(Entry::Bind { thread, original: original.clone(), ours: ours.clone() });
        ledger.note(Entry::Word(word));
        mask::set(&token, 0, &ours).unwrap();
        let restoring = std::thread::spawn(move || {
            mask::set(&ActToken::mint(), 0, &affinity::all_pes()).unwrap();
            restore(&ledger, &ActToken::mint(), None, &Memories::default(), WITHIN)
        });
        let end = Instant::now() + Duration::from_secs(120);
        while affinity::get(0).unwrap() != original && Instant::now() < end {
            std::thread::sleep(PAUSE);
        }
        let after = affinity::get(0).unwrap();
        // While it lives, the other thread waits for its memory.
        hiding.kill().and_then(|()| hiding.wait()).unwrap();
        assert_eq!(restoring.join().unwrap(), Remains::default());
        assert_eq!(after, original);
    })
    .join()
    .unwrap();
}

/// Its parents have ended, and its environment is empty: only the kernel's list tells that it is of the run.
#[test]
fn whatever_the_kernel_lists_of_a_run_has_inherited_the_level_that_looks_like_it() {
    corewise_testing::needs!(Root);
    let mut orphan = Command::new("sleep").arg("60").env_clear().spawn().unwrap();
    let pid = orphan.id();
    let since = Task::of(pid).unwrap().unwrap().start;
    let change = WeightChange::Nice { original: 0, ours: -13 };
    let corewise = Task { id: u32::MAX / 2, start: 1 };
    for (source, level) in [(Source::Process(corewise), -13), (Source::Corewise(corewise), 0)] {
        change.make(&ActToken::mint(), pid).unwrap();
        let mut ledger = Ledger::default();
        ledger.note(Entry::WeightHandedOut(HandedOutWeight { source, change, since }));
        let mut members = Listed(vec![vec![pid]; 3 * QUIET]);
        assert_eq!(restore_members(&ledger, &ActToken::mint(), &mut members, WITHIN), Remains::default());
        assert_eq!(niceness::level_of(pid), Ok(level), "{source:?}");
    }
    orphan.kill().and_then(|()| orphan.wait()).unwrap();
}
